"""The commands of pages without a test of their own run as printed, against two workers on one store.

Only addresses are replaced. Commands for a cluster or another machine are left out here; test_commands.py checks them.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys
from tests.architecture.sources import ROOT
from tests.documents.shell_blocks import Block, blocks_of, commands_of
from tests.end_to_end.documents import write_redis_cli
from tests.runtime.running import Running, run

PAGES = {
    "docs/changes.md": {0},
    "docs/command-line.md": {0},
    "docs/runbook.md": {0, 1},
}
"""Page -> exit codes of its commands. 1 is "the answer is no": `doctor` finds something, `compare` a difference."""
NOT_HERE = {"kubectl"}
WAITS = re.compile(r"BLOCK 0|--follow|curl -N")
WAIT_SECONDS, COMMAND_SECONDS = 3, 60
TIMED_OUT = 124
TLS = ("--tls-test-mode", "false", "--tls-key-path", "tls/server.key", "--tls-cert-path", "tls/server.pem")


class Fleet:
    def __init__(self, first: Running, second: Running, env: dict[str, str], folder: Path) -> None:
        self.env, self.folder = env, folder
        self.replacements = {
            "http://127.0.0.1:8080": first.http,
            "http://127.0.0.1:8081": first.admin,
            "http://names-1.example:8080": first.http,
            "https://names-1.example:8080": first.http.replace("http", "https"),
            "http://names-2.example:8080": second.http,
            "names-1.example:9876": first.remoting,
            "names-2.example:9876": second.remoting,
            "https://rb-1:8080,https://rb-2:8080": first.http.replace("http", "https"),
            "http://rb-test:8080": second.http,
            "rb:{default}": f"rb:{{{env['ROUTEBOOK_NAMESPACE']}}}",
        }

    def script(self, text: str) -> str:
        longest_first = sorted(self.replacements, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self.replacements[found[0]], text)


@pytest.fixture(scope="module")
def fleet(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("pages")
    namespace = f"t-pages-{os.getpid()}"
    assert run("certs", "--out", "tls", "--name", "localhost", cwd=folder).returncode == 0
    shutil.copy(folder / "tls" / "ca.pem", folder)
    flags = ("--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1", *TLS)
    (folder / "bin").mkdir()
    write_redis_cli(folder / "bin")
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    with Running("serve", *flags, folder=folder) as first, Running("serve", *flags, folder=folder) as second:
        for broker, broker_id, address in (("broker-a", 0, "127.0.0.11"), ("broker-a", 1, "127.0.0.12")):
            body = {"address": f"{address}:10911", "timeout_ms": 600_000, "topics": {"orders": {}}}
            first.put(f"/v1/clusters/DefaultCluster/brokers/{broker}/{broker_id}", body).raise_for_status()
        second.put("/v1/settings/hold_percent", {"value": 40}).raise_for_status()
        asyncio.run(add_reader(store_url, namespace, "old-pipeline"))
        env = {
            **os.environ,
            "PATH": path,
            "HOME": str(folder),
            "ROUTEBOOK_URL": first.http,
            "ROUTEBOOK_REDIS_URL": store_url,
            "ROUTEBOOK_NAMESPACE": namespace,
        }
        yield Fleet(first, second, env, folder)


async def add_reader(store_url: str, namespace: str, name: str) -> None:
    keys = Keys(namespace)
    client = StoreClient(StoreUrl.parse(store_url), slot_key=keys.meta, timeout_ms=5000)
    await client.open()
    try:
        await client.call("HSET", keys.table("readers"), name, "1 1")
    finally:
        await client.close()


def runs_here(line: str, path: str) -> bool:
    programs = {command[0] for command in commands_of(line)}
    return not NOT_HERE & programs and all(shutil.which(program, path=path) for program in programs)


def lines_of(block: Block) -> list[str]:
    """The commands of a block, one each. A command on several lines is one."""
    return [line for line in block.body.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize(
    "page", [page if page == "docs/command-line.md" else pytest.param(page, marks=pytest.mark.slow) for page in PAGES]
)
def test_the_commands_of_a_page_run(page: str, fleet: Fleet) -> None:
    shell = [block for block in blocks_of(page, (ROOT / page).read_text()) if block.language == "sh"]
    lines = [(block, line) for block in shell for line in lines_of(block) if runs_here(line, fleet.env["PATH"])]
    assert len(lines) > 1
    for block, line in lines:
        waits = WAITS.search(line) is not None
        script = f"timeout {WAIT_SECONDS} {fleet.script(line)}" if waits else fleet.script(line)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=fleet.folder,
            env=fleet.env,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        allowed = PAGES[page] | ({TIMED_OUT} if waits else set())
        assert done.returncode in allowed, f"{block.name}: {script}\n{done.returncode}\n{done.stdout}{done.stderr}"
