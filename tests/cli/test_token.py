"""`routebook token`: the token is printed once, works on all workers within a second, and is refused when revoked."""

import secrets
import time
from pathlib import Path

import httpx
import pytest

from routebook.cli.main import run
from tests.cli.conftest import CommandLine
from tests.runtime.running import Running
from tests.support.waiting import wait_until

ADMIN_TOKEN = "correct-horse-battery-staple"


def test_an_identity_is_created_listed_and_revoked(routebook: CommandLine) -> None:
    name = f"ci-{secrets.token_hex(4)}"
    options = ("--role", "operator", "--cluster", "east", "--topic", "pay-", "--topic", "bill-", "--expires", "30d")
    created = routebook("token", "create", name, *options, "--json")
    assert created.code == 0
    token = created.json["token"]
    assert token.startswith("rb_")
    listed = routebook("token", "list", "--json")
    (found,) = [one for one in listed.json if one["name"] == name]
    assert (found["role"], found["clusters"], found["topics"], found["brokers"]) == (
        "operator",
        ["east"],
        ["bill-", "pay-"],
        [],
    )
    assert found["expires_ms"] - found["created_ms"] == 30 * 86_400_000
    assert token not in listed.out
    shown = routebook("token", "list").out
    assert "clusters east*; topics bill-*, pay-*" in shown
    assert routebook("token", "revoke", name).code == 0
    assert routebook("token", "revoke", name).code == 1


def test_the_token_alone_is_on_standard_output(routebook: CommandLine) -> None:
    name = f"ci-{secrets.token_hex(4)}"
    created = routebook("token", "create", name, "--role", "read")
    assert created.out.startswith("rb_")
    assert len(created.out.splitlines()) == 1
    assert "not shown again" in created.err
    assert created.out.strip() not in created.err


def test_an_existing_name_is_exit_code_1_unless_replaced(routebook: CommandLine) -> None:
    name = f"ci-{secrets.token_hex(4)}"
    first = routebook("token", "create", name, "--role", "read").out
    refused = routebook("token", "create", name, "--role", "read")
    assert (refused.code, refused.out) == (1, "")
    assert "exists already" in refused.err
    assert routebook("token", "create", name, "--role", "read", "--replace").out not in ("", first)


def test_an_access_key_gets_a_secret(routebook: CommandLine, tmp_path: Path) -> None:
    name = f"broker-{secrets.token_hex(4)}"
    made = routebook("token", "create", name, "--role", "read", "--access-key", f"key-{name}")
    assert made.code == 0
    assert f"accessKey=key-{name}\nsecretKey=" in made.out
    file = tmp_path / "secret"
    file.write_text("a-secret-from-a-file\n")
    given = ("--access-key", f"other-{name}", "--secret-file", str(file))
    assert "secretKey=a-secret-from-a-file" in routebook("token", "create", f"{name}-2", "--role", "read", *given).out


@pytest.mark.parametrize(
    "options",
    [("--role", "root"), ("--role", "read", "--expires", "soon"), ("--role", "read", "--topic", "a\nb"), ()],
)
def test_wrong_options_are_exit_code_2(routebook: CommandLine, options: tuple[str, ...]) -> None:
    assert routebook("token", "create", "someone", *options).code == 2


def test_identities_work_on_all_workers_within_a_second(
    store_url: str, namespace_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two services on all addresses; each is one worker."""
    flags = ("--redis-url", store_url, "--namespace", namespace_name)
    env = {"ROUTEBOOK_ADMIN_TOKEN": ADMIN_TOKEN}
    with (
        Running("serve", *flags, folder=tmp_path, env=env) as one,
        Running("serve", *flags, folder=tmp_path, env=env) as other,
    ):
        for service in (one, other):
            service.http = service.http.replace("0.0.0.0", "127.0.0.1")
        for name in ("ROUTEBOOK_TOKEN", "ROUTEBOOK_ADMIN_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        assert run(["token", "list", "--url", one.http]) == 2
        monkeypatch.setenv("ROUTEBOOK_TOKEN", ADMIN_TOKEN)
        created = httpx.post(
            f"{one.http}/v1/identities",
            json={"name": "ops", "role": "operator"},
            headers={"authorization": f"Bearer {ADMIN_TOKEN}"},
            timeout=10,
        ).json()
        headers = {"authorization": f"Bearer {created['token']}"}

        def status_at_the_other() -> int:
            answer = httpx.put(f"{other.http}/v1/kv/n/k", json={"value": "v"}, headers=headers, timeout=10)
            return answer.status_code

        began = time.monotonic()
        wait_until(lambda: status_at_the_other() == 200, "the token is known")
        assert time.monotonic() - began < 1
        assert run(["token", "revoke", "ops", "--url", one.http]) == 0
        began = time.monotonic()
        wait_until(lambda: status_at_the_other() == 401, "the token is refused")
        assert time.monotonic() - began < 1
        assert created["token"] not in one.log + other.log
        assert "may register and remove brokers" in one.log
        assert other.get("/v1/status").json()["open_to_all"] == ["registration"]
        assert 'routebook_open_access{to="registration"} 1.0' in other.get_admin("/metrics").text
        assert 'routebook_open_access{to="remoting-administration"} 0.0' in other.get_admin("/metrics").text
