"""The console over plain HTTP: headers, sign-in, forms, and what a page costs. Browsers: tests/console."""

import re
from collections.abc import AsyncIterator
from html import unescape
from urllib.parse import quote

import httpx
import pytest

from routebook.console.live import WorkerRow, compare_digests
from routebook.console.rendering import ASSETS, POLICY
from routebook.console.views import search_names
from routebook.http_api.callers import SIGN_IN_COOKIE
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running, seat

TOKEN = "a-token-of-the-administrator"
FOREIGN = {"X-Forwarded-For": "192.0.2.1"}


@pytest.fixture
async def guarded(namespace: Namespace) -> AsyncIterator[Worker]:
    """A worker that demands a token for reads, too."""
    async with running(namespace, admin_token=TOKEN, http_reads="token") as one:
        yield one


def own_origin(worker: Worker) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{worker.port}"}


async def post(worker: Worker, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
    return await worker.http.post(path, data=fields, headers=own_origin(worker) | headers)


async def test_the_root_is_the_console(worker: Worker) -> None:
    answer = await worker.http.get("/", follow_redirects=True)
    assert (answer.status_code, answer.url.path) == (200, "/console/")
    assert "<h1>Overview" in answer.text


async def test_pages_forbid_everything_but_their_own_files(worker: Worker) -> None:
    answer = await worker.http.get("/console/")
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    assert answer.headers["referrer-policy"] == "same-origin"
    assert not re.search(r"<script(?! src)|<style|\son\w+=|\sstyle=", answer.text)


async def test_script_and_style_are_small_and_cached_by_their_hash(worker: Worker) -> None:
    assert sum(path.stat().st_size for path in ASSETS.glob("*.js")) <= 60_000
    page = await worker.http.get("/console/")
    for address in re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', page.text):
        answer = await worker.http.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", ["nothing.js", "..%2Frendering.py", "console.py"])
async def test_only_assets_are_served(worker: Worker, name: str) -> None:
    assert (await worker.http.get(f"/console/assets/0/{name}")).status_code == 404


async def test_names_are_escaped(worker: Worker) -> None:
    hostile = "<b>\"'&{{1}}"
    await worker.put_broker("broker-a", topics={hostile: {}}, zone="<i>")
    for path in (f"topic?name={quote(hostile)}", "topics", "broker?name=broker-a", "changes", "brokers"):
        text = (await worker.http.get(f"/console/{path}")).text
        assert "<b>" not in text
        assert "<i>" not in text


async def test_a_part_is_the_main_area_alone(worker: Worker) -> None:
    answer = await worker.http.get("/console/topics", headers={"X-Routebook-Part": "main"})
    assert answer.text.startswith("<main")


async def test_an_unknown_entry_and_a_bad_value_are_pages_too(worker: Worker) -> None:
    for path, status in (("change?id=1-1", 404), ("change?id=x", 422), ("topics?page=0", 422), ("changes?kind=x", 422)):
        answer = await worker.http.get(f"/console/{path}")
        assert answer.status_code == status, path
        assert "<h1>" in answer.text


# -- sign-in


async def test_reads_that_need_a_token_lead_to_the_sign_in(guarded: Worker) -> None:
    answer = await guarded.http.get("/console/topics?q=a", headers=FOREIGN)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/sign-in?next=%2Fconsole%2Ftopics%3Fq%3Da"
    assert (await guarded.http.get(answer.headers["location"], headers=FOREIGN)).status_code == 200
    assert (await guarded.http.get("/console/events", headers=FOREIGN)).status_code == 303


async def test_the_token_is_kept_where_no_script_and_no_other_site_reaches_it(guarded: Worker) -> None:
    answer = await post(guarded, "/console/sign-in", {"token": TOKEN, "next": "/console/topics"}, **FOREIGN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/topics")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{SIGN_IN_COOKIE}={TOKEN};")
    for part in ("HttpOnly", "SameSite=strict", "Path=/console/", "Max-Age=43200"):
        assert part in cookie
    answer = await guarded.http.get("/console/topics", headers=FOREIGN)
    assert answer.status_code == 200


async def test_the_api_ignores_the_cookie(guarded: Worker) -> None:
    cookie = {"Cookie": f"{SIGN_IN_COOKIE}={TOKEN}"}
    assert (await guarded.http.get("/v1/topics", headers=FOREIGN | cookie)).status_code == 401
    assert (await guarded.http.get("/console/topics", headers=FOREIGN | cookie)).status_code == 200


async def test_a_wrong_token_is_refused_and_a_wrong_cookie_forgotten(guarded: Worker) -> None:
    answer = await post(guarded, "/console/sign-in", {"token": "wrong"}, **FOREIGN)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    cookie = {"Cookie": f"{SIGN_IN_COOKIE}=wrong"}
    answer = await guarded.http.get("/console/", headers=FOREIGN | cookie)
    assert answer.status_code == 303
    assert "Max-Age=0" in answer.headers["set-cookie"]
    # Without a cookie nothing is forgotten: a link of another site comes without it.
    assert "set-cookie" not in (await guarded.http.get("/console/", headers=FOREIGN)).headers


@pytest.mark.parametrize("elsewhere", ["https://example.org/", "//example.org", "/console/\\example.org", "/v1/topics"])
async def test_the_sign_in_leads_nowhere_else(guarded: Worker, elsewhere: str) -> None:
    answer = await post(guarded, "/console/sign-in", {"token": TOKEN, "next": elsewhere})
    assert answer.headers["location"] == "/console/"


# -- forms


@pytest.mark.parametrize("origin", [{}, {"Origin": "https://example.org"}, {"Origin": "null"}])
@pytest.mark.parametrize("path", ["actions/delete-topic", "sign-in", "sign-out"])
async def test_a_form_of_another_site_is_refused(worker: Worker, origin: dict[str, str], path: str) -> None:
    await worker.put_broker()
    fields = {"topic": "TopicA", "confirm": "TopicA", "token": "x"}
    answer = await worker.http.post(f"/console/{path}", data=fields, headers=origin)
    assert answer.status_code == 403
    assert (await worker.http.get("/v1/topics/TopicA")).status_code == 200


async def test_an_action_needs_its_role_on_the_second_request_too(worker: Worker) -> None:
    await worker.put_broker()
    answer = await post(worker, "/console/actions/delete-topic", {"topic": "TopicA", "confirm": "TopicA"}, **FOREIGN)
    assert answer.status_code == 401
    assert (await worker.http.get("/v1/topics/TopicA")).status_code == 200


async def test_a_refused_action_names_its_object_in_the_audit(worker: Worker) -> None:
    await worker.put_broker()
    await post(worker, "/console/actions/delete-topic", {"topic": "TopicA", "confirm": "TopicA"}, **FOREIGN)
    (refusal,) = worker.registry.audit.take_refusals()
    assert (refusal.caller.verb, refusal.what) == ("delete_topic", "topic=TopicA")
    assert refusal.reason.startswith("token-missing")


async def test_a_look_at_an_action_is_not_in_the_audit(worker: Worker) -> None:
    await worker.put_broker()
    answer = await worker.http.get("/console/actions/delete-topic?topic=TopicA", headers=FOREIGN)
    assert answer.status_code == 200
    assert worker.registry.audit.take_refusals() == []


async def test_an_action_without_its_confirmation_changes_nothing(worker: Worker) -> None:
    await worker.put_broker()
    for confirmation in ("", "topica", "TopicA "):
        fields = {"topic": "TopicA", "confirm": confirmation}
        assert (await post(worker, "/console/actions/delete-topic", fields)).status_code == 422
    assert (await worker.http.get("/v1/topics/TopicA")).status_code == 200


@pytest.mark.parametrize(
    ("page", "method", "path", "body"),
    [
        ("write-permission?name=broker-a&writable=false", "PUT", "/v1/brokers/broker-a/write-permission", False),
        ("write-permission?name=broker-a&writable=true", "PUT", "/v1/brokers/broker-a/write-permission", True),
        ("delete-topic?topic=TopicA", "DELETE", "/v1/topics/TopicA", None),
        ("delete-topic?topic=TopicA&cluster=Other", "DELETE", "/v1/topics/TopicA?cluster=Other", None),
        ("remove-broker?cluster=DefaultCluster&name=broker-a&id=0", "DELETE", seat(), None),
        ("release-hold", "POST", "/v1/expiry/release", None),
        ("change-setting?key=hold_percent&value=37", "PUT", "/v1/settings/hold_percent", "37"),
        ("reset-setting?key=hold_minimum", "DELETE", "/v1/settings/hold_minimum", None),
        ("write-key?namespace=space&key=one&value=other", "PUT", "/v1/kv/space/one", "other"),
        ("write-key?namespace=space&key=one&value=present", "PUT", "/v1/kv/space/one", "present"),
        ("delete-key?namespace=space&key=one", "DELETE", "/v1/kv/space/one", None),
    ],
)
async def test_the_preview_of_an_action_is_the_dry_run_of_the_api(
    worker: Worker, page: str, method: str, path: str, body: bool | str | None
) -> None:
    await worker.put_broker(topics={"TopicA": {}, "TopicB": {"perm": 4}})
    await worker.http.put("/v1/kv/space/one", json={"value": "present"})
    await worker.http.put("/v1/settings/hold_minimum", json={"value": "9"})
    name = "writable" if isinstance(body, bool) else "value"
    path += ("&" if "?" in path else "?") + "dry_run=true"
    answer = await worker.http.request(method, path, json=None if body is None else {name: body})
    plan = answer.raise_for_status().json()
    text = (await worker.http.get(f"/console/actions/{page}")).raise_for_status().text
    changes = re.search(r'<(ul|p) id="changes">(.*?)</\1>', text, re.DOTALL)
    assert changes
    lines = [unescape(line) for line in re.findall(r"<li>(.*?)</li>", changes[2])]
    assert lines == [f"{one['what']}: {one['before']} → {one['after']}" for one in plan["changes"]]
    assert ('<form class="confirm"' in text) == (plan["count"] > 0)


@pytest.mark.parametrize("page", ["delete-key?namespace=space&key=one", "write-key?namespace=space&key=one"])
async def test_a_preview_shows_no_value_without_the_role(worker: Worker, page: str) -> None:
    await worker.http.put("/v1/kv/space/one", json={"value": "a-secret-value"})
    assert "a-secret-value" not in (await worker.http.get(f"/console/actions/{page}", headers=FOREIGN)).text


async def test_a_setting_is_not_shown_without_the_role(worker: Worker) -> None:
    answer = await worker.http.get("/console/actions/change-setting?key=hold_percent", headers=FOREIGN)
    assert "from default" not in answer.text
    assert 'id="refusal"' in answer.text


@pytest.mark.parametrize("path", ["change-setting", "write-key"])
async def test_an_action_without_its_value_is_refused(worker: Worker, path: str) -> None:
    fields = {"namespace": "space", "key": "hold_percent", "confirm": "hold_percent"}
    assert (await post(worker, f"/console/actions/{path}", fields)).status_code == 422


@pytest.mark.parametrize(
    "missing", ["write-permission", "delete-topic", "remove-broker", "change-setting", "delete-key"]
)
async def test_an_action_without_its_object_is_refused(worker: Worker, missing: str) -> None:
    assert (await worker.http.get(f"/console/actions/{missing}")).status_code == 422
    assert (await post(worker, f"/console/actions/{missing}", {})).status_code == 422


# -- searches, and the agreement of workers


async def test_names_that_begin_with_the_text_come_first() -> None:
    names = ["b-order", "orders", "Orders-2", "a-order", "other"]
    assert (await search_names(names, "order")).names == ["Orders-2", "orders", "a-order", "b-order"]
    assert (await search_names(names, "Order")).names == ["Orders-2"]
    found = await search_names(names, "", offset=1, limit=2)
    assert (found.names, found.total) == (["a-order", "b-order"], 5)


async def test_a_search_of_100_000_names_finds_all() -> None:
    names = {f"topic-{number:06}": None for number in range(100_000)}
    found = await search_names(names, "99")
    assert found.total == sum("99" in name for name in names)
    assert found.names[0] == "topic-000099"


def worker_row(name: str, version: int, digest: str, *, alive: bool = True) -> WorkerRow:
    return WorkerRow(name, alive, False, False, version, digest, 0, 0, {})


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([worker_row("a", 5, "x"), worker_row("b", 5, "x")], "agree"),
        ([worker_row("a", 5, "x"), worker_row("b", 5, "y")], "differ"),
        ([worker_row("a", 5, "x"), worker_row("b", 6, "y")], "behind"),
        ([worker_row("a", 5, "x"), worker_row("b", 5, "y"), worker_row("c", 6, "z")], "differ"),
        ([worker_row("a", 5, "x"), worker_row("b", 5, "y", alive=False)], "agree"),
        ([], "unknown"),
    ],
)
def test_only_digests_of_the_same_version_are_compared(rows: list[WorkerRow], verdict: str) -> None:
    assert compare_digests(rows)[0] == verdict
