"""Actions: first what would change, then a confirmation that names the object, then the history's own record."""

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import BEHIND_A_PROXY, CLUSTER, TOKEN, Visit, register, serving
from tests.runtime.running import Running
from tests.support.waiting import wait_until


def confirm(page: Page, name: str) -> None:
    page.get_by_label("To confirm, type").fill(name)
    page.locator("form.confirm button").click()


def kinds_of(page: Page) -> list[str]:
    """Waits for the page of the result, which the click on the button only requests."""
    expect(page.locator("#result")).to_be_visible()
    return page.locator("#result .kind").all_inner_texts()


def test_write_permission_is_taken_and_given_back(visit: Visit, service: Running) -> None:
    register(service, "perm-a", "perm-topic", "perm-other")
    page = visit().open("/console/broker?name=perm-a")
    page.get_by_text("Forbid writing…").click()
    expect(page.locator("#changes li")).to_have_count(2)
    assert service.get("/v1/topics/perm-topic").json()["queues"]["perm-a"]["perm"] == 6
    confirm(page, "perm-a")
    assert kinds_of(page) == ["write-permission"]
    assert service.get("/v1/topics/perm-topic").json()["queues"]["perm-a"]["perm"] == 4
    page.goto(f"{service.http}/console/topic?name=perm-topic")
    expect(page.locator("#route .alarm.bad")).to_contain_text("no group allows writing")
    page.goto(f"{service.http}/console/actions/write-permission?name=perm-a&writable=true")
    confirm(page, "perm-a")
    assert service.get("/v1/topics/perm-topic").json()["queues"]["perm-a"]["perm"] == 6


def test_a_topic_is_deleted_only_with_its_name(visit: Visit, service: Running) -> None:
    register(service, "delete-a", "delete-me", "delete-not")
    page = visit().open("/console/topic?name=delete-me")
    page.get_by_text("Delete…").click()
    expect(page.locator("#changes li")).to_have_text(["topic delete-me on delete-a: perm 6, 8 read, 8 write → none"])
    confirm(page, "delete-not")
    expect(page.locator(".alarm.bad")).to_contain_text("Nothing was changed")
    assert service.get("/v1/topics/delete-me").status_code == 200
    confirm(page, "delete-me")
    assert kinds_of(page) == ["queues-changed"]
    expect(page.locator("main")).to_contain_text("Recorded in the audit: delete_topic topic=delete-me")
    assert service.get("/v1/topics/delete-me").status_code == 404
    assert service.get("/v1/topics/delete-not").status_code == 200
    last = service.get("/v1/changes", order="desc", limit=1).json()["changes"][0]
    assert (last["verb"], last["actor"], last["port"]) == ("delete_topic", "operator", "http")


def test_a_broker_is_removed_with_what_goes_with_it(visit: Visit, service: Running) -> None:
    register(service, "remove-a", "remove-topic")
    page = visit().open("/console/broker?name=remove-a")
    page.get_by_text("Remove…").click()
    expect(page.locator("#changes")).to_contain_text("topic remove-topic on remove-a: perm 6, 8 read, 8 write → none")
    confirm(page, "remove-a/0")
    assert kinds_of(page) == ["broker-removed"]
    assert service.get("/v1/brokers/remove-a").status_code == 404


def test_a_setting_is_changed_and_shows_its_origin(visit: Visit, service: Running) -> None:
    page = visit().open("/console/actions/change-setting?key=broker_timeout_ms")
    page.get_by_label("New value of broker_timeout_ms").fill("90000")
    page.get_by_text("Show what would change").click()
    expect(page.locator("#changes li")).to_have_text(["setting broker_timeout_ms: 120000 (default) → 90000"])
    confirm(page, "broker_timeout_ms")
    assert kinds_of(page) == ["settings-changed"]
    page.goto(f"{service.http}/console/settings?q=broker_timeout_ms")
    expect(page.locator("tbody tr").first).to_contain_text("run time")
    expect(page.locator("tbody tr").first).to_contain_text("by operator")
    page.get_by_text("Reset…").click()
    expect(page.locator("#changes li")).to_have_text(
        ["setting broker_timeout_ms: 90000 (run time) → 120000 (file or default)"]
    )
    confirm(page, "broker_timeout_ms")
    assert kinds_of(page) == ["settings-changed"]
    found = {one["key"]: one["origin"] for one in service.get("/v1/settings").json()["settings"]}
    assert found["broker_timeout_ms"] == "default"


def test_an_impossible_value_of_a_setting_is_refused_before_anything_changes(visit: Visit) -> None:
    page = visit().open("/console/actions/change-setting?key=broker_timeout_ms&value=-1")
    expect(page.locator(".alarm.bad")).to_contain_text("broker_timeout_ms is '-1'")


def test_a_key_is_written_and_deleted(visit: Visit, service: Running) -> None:
    page = visit().open("/console/key-values")
    form = page.locator("form[action='/console/actions/write-key']")
    form.get_by_label("Key").fill("kv-topic")
    form.get_by_label("Value").fill("broker-a:8;<b>")
    form.get_by_role("button").click()
    expect(page.locator("#changes li")).to_contain_text("key ORDER_TOPIC_CONFIG/kv-topic: none → value of 14 bytes")
    confirm(page, "kv-topic")
    assert kinds_of(page) == ["kv-put"]
    assert service.get("/v1/kv/ORDER_TOPIC_CONFIG/kv-topic").json()["value"] == "broker-a:8;<b>"
    page.goto(f"{service.http}/console/actions/delete-key?namespace=ORDER_TOPIC_CONFIG&key=kv-topic")
    confirm(page, "kv-topic")
    assert kinds_of(page) == ["kv-deleted"]


def test_releasing_nothing_changes_nothing(visit: Visit) -> None:
    page = visit().open("/console/actions/release-hold")
    expect(page.locator("main")).to_contain_text("Nothing is on hold")
    assert page.locator("form.confirm").count() == 0


@pytest.mark.slow
def test_a_hold_is_shown_first_and_released(visit: Visit, tmp_path: Path) -> None:
    flags = ("--hold-minimum", "3", "--hold-percent", "30", "--scan-not-active-broker-interval-ms", "500")
    with serving(tmp_path, *flags) as held:
        for number in range(6):
            register(held, f"held-{number}", f"held-topic-{number}", timeout_ms=1000)
        visitor = visit(held.http)
        page = visitor.open("/console/")
        visitor.wait_until_live()
        expect(page.locator("#banner")).to_contain_text("Removals are on hold")
        page.get_by_role("link", name="Decide").click()
        listed = page.locator("#changes li")
        expect(listed.first).to_contain_text("removal held → removed by the next scan")
        count = listed.count()
        confirm(page, "release")
        assert "expiry-released" in kinds_of(page)
        wait_until(lambda: len(held.get("/v1/brokers").json()["brokers"]) <= 6 - count, "the scan removes the brokers")
        page.goto(f"{held.http}/console/")
        expect(page.locator("#banner")).not_to_contain_text("on hold")


def test_a_baseline_is_requested(visit: Visit, service: Running) -> None:
    page = visit().open("/console/actions/write-baseline")
    expect(page.locator("#changes li")).to_have_count(1)
    confirm(page, "baseline")
    expect(page.locator("#done")).to_be_visible()


def test_without_an_identity_the_console_only_reads(visit: Visit, service: Running) -> None:
    register(service, "guard-a", "guard-topic")
    page = visit(extra_http_headers=BEHIND_A_PROXY).open("/console/actions/delete-topic?topic=guard-topic")
    expect(page.locator(".who")).to_contain_text("read only")
    expect(page.locator("#refusal")).to_contain_text("role operator")
    assert page.locator("form.confirm").count() == 0
    page.goto(f"{service.http}/console/settings")
    expect(page.locator(".alarm.bad")).to_contain_text("role admin")


def sign_in(page: Page, base: str, token: str) -> None:
    page.goto(f"{base}/console/sign-in?next=%2Fconsole%2Ftopics")
    page.get_by_label("Token").fill(token)
    page.locator("form.sign-in button").click()


def test_signing_in_and_out(visit: Visit, service: Running) -> None:
    visitor = visit(extra_http_headers=BEHIND_A_PROXY)
    page = visitor.page
    sign_in(page, service.http, "a-wrong-token")
    expect(page.locator(".alarm.bad")).to_contain_text("The token is wrong")
    sign_in(page, service.http, TOKEN)
    page.wait_for_url("**/console/topics")
    expect(page.locator(".who")).to_contain_text("admin-token · admin")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console/")
    assert page.evaluate("document.cookie") == ""
    page.get_by_text("Sign out").click()
    expect(page.locator(".who")).to_contain_text("read only")
    assert page.context.cookies() == []


def create_identity(service: Running, name: str, role: str, valid_for_ms: int | None = None) -> str:
    """Returns its token."""
    body = {"name": name, "role": role, "valid_for_ms": valid_for_ms}
    answer = httpx.post(f"{service.http}/v1/identities", json=body, timeout=10, trust_env=False)
    answer.raise_for_status()
    return str(answer.json()["token"])


@pytest.mark.parametrize(("role", "may"), [("read", False), ("operator", True)])
def test_an_identity_may_do_what_its_role_allows(visit: Visit, service: Running, role: str, may: bool) -> None:
    register(service, f"role-{role}", f"role-topic-{role}")
    token = create_identity(service, f"console-{role}", role)
    page = visit(extra_http_headers=BEHIND_A_PROXY).page
    sign_in(page, service.http, token)
    page.wait_for_url("**/console/topics")
    page.goto(f"{service.http}/console/actions/delete-topic?topic={quote(f'role-topic-{role}')}")
    if not may:
        expect(page.locator("#refusal")).to_contain_text("has the role read; this request needs operator")
        return
    confirm(page, f"role-topic-{role}")
    assert kinds_of(page) == ["queues-changed"]
    last = service.get("/v1/changes", order="desc", limit=1).json()["changes"][0]
    assert (last["actor"], last["cluster"]) == (f"console-{role}", CLUSTER)


def test_a_revoked_token_signs_out(visit: Visit, service: Running) -> None:
    token = create_identity(service, "console-revoked", "operator")
    page = visit(extra_http_headers=BEHIND_A_PROXY).page
    sign_in(page, service.http, token)
    page.wait_for_url("**/console/topics")
    service.delete("/v1/identities/console-revoked").raise_for_status()
    page.reload()
    expect(page.locator("#banner")).to_contain_text("Your token is not valid any more")
    assert page.context.cookies() == []


def test_an_expired_token_signs_out(visit: Visit, service: Running) -> None:
    token = create_identity(service, "console-short", "operator", valid_for_ms=4_000)
    page = visit(extra_http_headers=BEHIND_A_PROXY).page
    sign_in(page, service.http, token)
    page.wait_for_url("**/console/topics")
    expect(page.locator(".who")).to_contain_text("console-short")

    def is_signed_out() -> bool:
        page.reload()
        return "read only" in page.locator(".who").inner_text()

    wait_until(is_signed_out, "the identity expires")
    assert page.context.cookies() == []
    page.goto(f"{service.http}/console/actions/release-hold")
    expect(page.locator("#refusal")).to_contain_text("needs a token with the role operator")


def test_a_form_of_another_site_changes_nothing(visit: Visit, service: Running) -> None:
    """The cookie is not sent with it, and its origin is refused."""
    register(service, "csrf-a", "csrf-topic")
    page = visit().page
    page.set_content(
        f"<form method=post action='{service.http}/console/actions/delete-topic'>"
        "<input name=topic value=csrf-topic><input name=confirm value=csrf-topic><button>Win</button></form>"
    )
    page.get_by_text("Win").click()
    page.wait_for_url("**/console/actions/delete-topic")
    expect(page.locator("main")).to_contain_text("may not send this request")
    assert service.get("/v1/topics/csrf-topic").status_code == 200
