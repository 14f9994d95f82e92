"""Issue 12, item 13: recognisable secrets are planted in every secret place of a real service, and looked for in all of
its outputs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from routebook.background.leader import FIRST_KEY_VALUES_AFTER_S
from routebook.settings.fields import Settings
from routebook.settings.loading import load
from routebook.store.embedded import EmbeddedStore
from tests.runtime.running import Running
from tests.support.peers import Peer
from tests.support.topologies import ask
from tests.support.waiting import until

NAMESPACE = "secrets"
STORE_PASSWORD = "planted-store-password-7c1f"
ADMIN_TOKEN = "planted-admin-token-93ab"
TLS_PASSWORD = "planted-tls-password-51de"
SIGNING_SECRET = "planted-signing-secret-e0a4"
KEY_VALUE = "planted-key-value-2b6d"
WRONG_TOKEN = "planted-wrong-token-f318"
SENT = "planted-in-a-request-8841"
SHOWN_IN_A_SNAPSHOT = KEY_VALUE


@dataclass
class Outputs:
    """What the service has shown, by where."""

    texts: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        assert name not in self.texts
        self.texts[name] = text

    def leaks(self, secrets: dict[str, str]) -> list[str]:
        return [
            f"{secret} in {place}: {line[:500]}"
            for place, text in self.texts.items()
            for secret, value in secrets.items()
            for line in text.splitlines()
            if value in line
        ]


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as running:
        ask(running.port or 0, "ACL", "SETUSER", "planted", "on", f">{STORE_PASSWORD}", "~*", "&*", "+@all")
        yield running


def environment(store: EmbeddedStore, log_format: str) -> dict[str, str]:
    return {
        "ROUTEBOOK_REDIS_URL": f"redis://planted:{STORE_PASSWORD}@127.0.0.1:{store.port}/0",
        "ROUTEBOOK_NAMESPACE": NAMESPACE,
        "ROUTEBOOK_ADMIN_TOKEN": ADMIN_TOKEN,
        "ROUTEBOOK_TLS_KEY_PASSWORD": TLS_PASSWORD,
        "ROUTEBOOK_BIND_ADDRESS": "127.0.0.1",
        "ROUTEBOOK_LOG_FORMAT": log_format,
        "ROUTEBOOK_LOG_LEVEL": "debug",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_no_output_of_a_service_contains_a_secret(store: EmbeddedStore, tmp_path: Path, log_format: str) -> None:
    outputs, env = Outputs(), environment(store, log_format)
    ask(store.port or 0, "FLUSHALL")
    with Running("serve", folder=tmp_path, env=env) as service:
        token = plant(service, outputs)
        await ask_remoting(service, outputs)
        read_everything(service, outputs)
        run_commands(service, outputs, env)
        outputs.add("standard output", service.output)
        assert service.stop() == 0
        outputs.add("log", service.log)
    for stream in ("changes", "refusals"):
        entries = ask(store.port or 0, "XRANGE", f"rb:{{{NAMESPACE}}}:{stream}", "-", "+")
        assert entries, stream
        outputs.add(f"stream {stream}", repr(entries))
    assert "routebook.audit" in outputs.texts["log"] or "outcome=refused" in outputs.texts["log"]
    secrets = {
        "the store's password": STORE_PASSWORD,
        "the admin token": ADMIN_TOKEN,
        "the TLS key's password": TLS_PASSWORD,
        "the secret of a signature": SIGNING_SECRET,
        "the token of an identity": token,
        "a wrong token": WRONG_TOKEN,
        "a key-value": KEY_VALUE,
        "a value in a refused request": SENT,
    }
    assert outputs.leaks(secrets) == []


def plant(service: Running, outputs: Outputs) -> str:
    """Returns the token of an identity. The answers that show a secret on purpose are not kept."""
    with httpx.Client(base_url=service.http, trust_env=False, timeout=10) as http:
        admin = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        wrong = {"authorization": f"Bearer {WRONG_TOKEN}"}
        identity = {"name": "ci", "role": "operator", "access_key": "planted-key", "secret": SIGNING_SECRET}
        created = http.post("/v1/identities", json=identity, headers=admin)
        assert created.status_code in (200, 201), created.text
        assert http.put("/v1/kv/ns/key", json={"value": KEY_VALUE}, headers=admin).is_success
        assert http.put("/v1/settings/hold_percent", json={"value": "41"}, headers=admin).is_success
        refused = [
            http.put("/v1/kv/ns/key", json={"value": SENT}, headers=wrong),
            http.put("/v1/settings/admin_token", json={"value": SENT}, headers=admin),
            http.put("/v1/settings/redis_url", json={"value": f"redis://:{SENT}@h/"}, headers=admin),
            http.put("/v1/kv/ns/key", json={"valeu": SENT}, headers=admin),
            http.put("/v1/kv/ns/key", content=f'{{"value": "{SENT}', headers=admin),
            http.post("/v1/identities", json=identity | {"name": "y", "role": "nonsense"}, headers=admin),
            http.post("/v1/identities", json=identity | {"name": "x", "secret": SENT[:8]}, headers=admin),
            http.get("/v1/settings", headers=wrong),
        ]
        for number, answer in enumerate(refused):
            assert answer.status_code >= 400, answer.text
            outputs.add(f"refusal {number}", answer.text + repr(answer.headers))
        return str(created.json()["token"])


async def ask_remoting(service: Running, outputs: Outputs) -> None:
    async with await Peer.connect(service.remoting) as peer:
        outputs.add("319", repr(await peer.ask(319)))
        signed = {"namespace": "ns", "key": "key", "value": KEY_VALUE, "AccessKey": "planted-key", "Signature": SENT}
        outputs.add("100, wrongly signed", repr(await peer.ask(100, signed)))
        outputs.add("318", repr(await peer.ask(318, {}, body=f"adminToken={SENT}\nredisUrl={SENT}\n".encode())))


def read_everything(service: Running, outputs: Outputs) -> None:
    admin = {"authorization": f"Bearer {ADMIN_TOKEN}"}
    with httpx.Client(base_url=service.http, headers=admin, trust_env=False, timeout=10) as http:
        paths = ["settings", "status", "changes?limit=1000", "identities", "expiry", "brokers", "topics", "snapshot"]
        for path in paths:
            answer = http.get(f"/v1/{path}")
            assert answer.is_success, answer.text
            # A snapshot has the key-values on purpose.
            outputs.add(path, answer.text.replace(SHOWN_IN_A_SNAPSHOT, "") if path == "snapshot" else answer.text)
        outputs.add("description", http.get("/openapi.json").text)
    outputs.add("metrics", service.get_admin("/metrics").text)


def run_commands(service: Running, outputs: Outputs, env: dict[str, str]) -> None:
    commands = [["serve", "-p"], ["serve", "-p", "--json"], ["doctor"], ["doctor", "--json"], ["status"], ["changes"]]
    commands += [
        ["settings", "list"],
        ["token", "list"],
        ["changes", "--json"],
        ["settings", "set", "admin_token", "x y"],
    ]
    for words in commands:
        ended = subprocess.run(
            [sys.executable, "-m", "routebook", *words],
            env={**os.environ, **env, "ROUTEBOOK_URL": service.http},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        outputs.add(f"routebook {' '.join(words)}", ended.stdout + ended.stderr)


@pytest.mark.slow
async def test_the_log_of_a_service_that_runs_for_a_minute_contains_no_secret(
    store: EmbeddedStore, tmp_path: Path
) -> None:
    """After a minute, the leader logs all key-values. On a busy machine the test above lasts that long."""
    outputs, env = Outputs(), environment(store, "json")
    ask(store.port or 0, "FLUSHALL")
    with Running("serve", folder=tmp_path, env=env) as service:
        token = plant(service, outputs)
        await ask_remoting(service, outputs)
        await until(lambda: "key-value ns/key" in service.log, timeout_s=FIRST_KEY_VALUES_AFTER_S + 30, every_s=0.5)
        assert service.stop() == 0
        outputs.add("log", service.log)
    assert outputs.leaks({"a token": token, "a wrong token": WRONG_TOKEN, "a key-value": KEY_VALUE, "sent": SENT}) == []


def test_settings_that_are_refused_are_not_repeated(store: EmbeddedStore, tmp_path: Path) -> None:
    """Each secret setting with a value that stops the start."""
    for name, value in (
        ("ROUTEBOOK_ADMIN_TOKEN", f"{SENT} with blanks"),
        ("ROUTEBOOK_REDIS_URL", f"redis://u:{SENT}@127.0.0.1:notaport/0"),
        ("ROUTEBOOK_REDIS_URL", f"http://u:{SENT}@127.0.0.1:1/0"),
        ("ROUTEBOOK_REDIS_URL", f"redis://u:{SENT}@127.0.0.1:1/0?nonsense=1"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "routebook", "serve"],
            env={**os.environ, **environment(store, "text"), name: value},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode != 0
        assert SENT not in ended.stdout + ended.stderr, (name, ended.stderr)


def test_settings_do_not_show_secrets_in_their_repr(store: EmbeddedStore) -> None:
    loaded = load({}, environment(store, "text"), None, "serve").settings
    shown = repr(loaded) + str(loaded) + json.dumps(str(loaded))
    assert isinstance(loaded, Settings)
    assert [one for one in (STORE_PASSWORD, ADMIN_TOKEN, TLS_PASSWORD) if one in shown] == []
