"""An unsuitable store is refused with advice; doctor reports the other findings."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from routebook.errors import StoreUnavailableError, StoreUnsuitableError
from routebook.store.checks import Finding, StoreFacts, check_store, diagnose, judge, probes
from routebook.store.connection.client import StoreClient, StoreReplyError
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.namespace import ScriptSet
from tests.support.topologies import ask

GOOD = StoreFacts("Redis", "7.0.15", 1 << 30, "noeviction", True, 0, 0, disk_trouble=False, refused_commands=())
NAMESPACE = "default"


@pytest.fixture
def own_store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as store:
        yield store


@pytest.fixture
async def own_client(own_store: EmbeddedStore) -> AsyncIterator[StoreClient]:
    client = new_client(own_store.url)
    await client.open()
    yield client
    await client.close()


def new_client(url: str) -> StoreClient:
    return StoreClient(StoreUrl.parse(url), slot_key="rb:{default}:meta", timeout_ms=5000)


def as_user(store: EmbeddedStore, name: str, *rules: str) -> str:
    """Creates a user, and returns the store's address with it."""
    ask(store.port or 0, "ACL", "SETUSER", name, "on", ">pass word", *rules)
    return f"redis://{name}:pass%20word@127.0.0.1:{store.port}"


def worst(facts: StoreFacts) -> Finding:
    order = ["ok", "warning", "error"]
    return max(judge(facts, NAMESPACE), key=lambda finding: order.index(finding.level))


def test_a_suitable_store_causes_no_finding() -> None:
    assert worst(GOOD).level == "ok"


@pytest.mark.parametrize(
    ("facts", "level", "subject", "sets"),
    [
        (replace(GOOD, version="6.0.16"), "error", "store version", "6.2 or newer"),
        (replace(GOOD, version="6.2.0"), "ok", "", ""),
        (replace(GOOD, version="10.0.0"), "ok", "", ""),
        (replace(GOOD, server="Valkey", version="9.1.2"), "ok", "", ""),
        (replace(GOOD, version=""), "warning", "store version", "INFO"),
        (replace(GOOD, eviction_policy="allkeys-lru"), "error", "eviction policy", "maxmemory-policy noeviction"),
        (replace(GOOD, eviction_policy="volatile-ttl", max_memory_bytes=0), "error", "eviction policy", "noeviction"),
        (replace(GOOD, eviction_policy=""), "warning", "eviction policy", "noeviction"),
        (replace(GOOD, refused_commands=("XADD",)), "error", "permission", "routebook doctor --acl"),
        (replace(GOOD, append_only=False), "warning", "persistence", "appendonly yes"),
        (replace(GOOD, append_only=None), "warning", "persistence", "appendonly"),
        (replace(GOOD, disk_trouble=True), "error", "persistence", "free disk space"),
        (replace(GOOD, replicas=2), "warning", "replicas", "min-replicas-to-write 1"),
        (replace(GOOD, replicas=2, min_replicas=1), "ok", "", ""),
        (replace(GOOD, replicas=2, min_replicas=None), "ok", "", ""),
    ],
)
def test_each_rule(facts: StoreFacts, level: str, subject: str, sets: str) -> None:
    finding = worst(facts)
    assert finding.level == level
    if level != "ok":
        assert finding.subject == subject
        assert sets in finding.advice


async def test_the_store_of_the_tests_is_suitable_and_the_check_leaves_nothing_in_it(
    client: StoreClient, namespace_name: str
) -> None:
    facts = await check_store(client, namespace_name)
    assert facts.server in str(facts)
    assert facts.version in str(facts)
    assert [finding.subject for finding in await diagnose(client, namespace_name)][:3] == [
        "store version",
        "eviction policy",
        "permission",
    ]
    assert await client.call("KEYS", f"rb:{{{namespace_name}}}:probe:*") == []


async def test_an_evicting_store_is_refused(own_client: StoreClient) -> None:
    await own_client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreUnsuitableError) as refusal:
        await check_store(own_client, NAMESPACE)
    assert "allkeys-lru" in refusal.value.message
    assert "CONFIG SET maxmemory-policy noeviction" in refusal.value.advice


async def test_a_full_store_is_reported_as_full(own_client: StoreClient) -> None:
    await own_client.call("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailableError, match="OOM"):
        await check_store(own_client, NAMESPACE)


async def test_a_user_with_the_advised_permissions_is_accepted(own_store: EmbeddedStore) -> None:
    client = new_client(as_user(own_store, "worker", "~rb:{default}:*", "+@all", "-@dangerous", "+info"))
    await client.open()
    await check_store(client, NAMESPACE)
    with pytest.raises(StoreReplyError) as refusal:
        await client.call("GET", "rb:{other}:meta")
    assert refusal.value.code == "NOPERM"
    with pytest.raises(StoreReplyError) as refusal:
        await client.call("EVAL", "return redis.call('get', KEYS[1])", 1, "rb:{other}:meta")
    assert refusal.value.code == "NOPERM"
    await client.close()


async def test_a_user_without_xadd_is_refused_and_the_command_named(own_store: EmbeddedStore) -> None:
    client = new_client(as_user(own_store, "worker", "~*", "+@all", "-xadd"))
    await client.open()
    with pytest.raises(StoreUnsuitableError, match="XADD"):
        await check_store(client, NAMESPACE)
    await client.close()


async def test_a_user_of_another_namespace_is_refused(own_store: EmbeddedStore) -> None:
    client = new_client(as_user(own_store, "worker", "~rb:{other}:*", "+@all"))
    await client.open()
    with pytest.raises(StoreUnsuitableError, match="namespace default"):
        await check_store(client, NAMESPACE)
    await client.close()


async def test_a_user_with_only_the_needed_commands_is_accepted(own_store: EmbeddedStore) -> None:
    """Without ROLE, CLIENT, PING, INFO and CONFIG: unknown facts are warnings, and HELLO has the version."""
    needed = {f"+{words[0].lower()}" for words in probes(NAMESPACE)}
    client = new_client(as_user(own_store, "worker", "~rb:{default}:*", *needed))
    await client.open()
    facts = await check_store(client, NAMESPACE)
    assert facts.version
    assert {finding.subject for finding in await diagnose(client, NAMESPACE) if finding.level == "warning"} == {
        "eviction policy",
        "persistence",
    }
    await client.close()


async def test_a_wrong_password_is_reported_without_printing_it(own_store: EmbeddedStore) -> None:
    as_user(own_store, "worker", "~*", "+@all")
    client = new_client(f"redis://worker:nonsense@127.0.0.1:{own_store.port}")
    with pytest.raises(StoreUnavailableError) as refusal:
        await client.open()
    assert "WRONGPASS" in refusal.value.message
    assert "password" in refusal.value.advice
    assert "nonsense" not in str(refusal.value)
    await client.close()


async def test_a_missing_password_is_reported(own_store: EmbeddedStore) -> None:
    ask(own_store.port or 0, "CONFIG", "SET", "requirepass", "x")
    client = new_client(own_store.url)
    with pytest.raises(StoreUnavailableError, match="NOAUTH"):
        await client.open()
    await client.close()


async def test_a_deleted_user_makes_calls_fail_at_once(own_store: EmbeddedStore) -> None:
    client = new_client(as_user(own_store, "worker", "~*", "+@all"))
    await client.open()
    ask(own_store.port or 0, "ACL", "DELUSER", "worker")
    with pytest.raises(StoreUnavailableError):
        await client.call("GET", "k")
    await client.close()


def test_the_probe_covers_every_command_of_the_scripts() -> None:
    scripts = ScriptSet.load()
    used = {
        command.upper()
        for name in scripts.names
        for command in re.findall(r"redis\.p?call\(\s*['\"](\w+)", scripts[name].source)
    }
    assert used
    assert used <= {words[0] for words in probes(NAMESPACE)}


def test_the_probe_covers_every_command_of_this_package() -> None:
    folder = Path(__file__).parents[2] / "service" / "routebook" / "store"
    sources = [path.read_text() for path in folder.rglob("*.py") if path.name not in ("dialer.py", "checks.py")]
    used = {
        command
        for source in sources
        for command in re.findall(r"[\[(]\s*\"([A-Z]{3,})\",\s+(?:namespace|key|script|\"LOAD|\"COUNT|\"BLOCK)", source)
    }
    assert {"XREAD", "XTRIM", "EVAL"} <= used
    assert used <= {words[0] for words in probes(NAMESPACE)}
