"""Whether Routebook can use a store, and what to change if it cannot.

`check_store` stops the start if there are errors; `diagnose` (for `routebook doctor`) shows all findings; `find_alarms`
judges what may change while a worker runs.

`acl_rules` and `acl_commands` give the Redis ACL rules that a worker's store user needs (`routebook doctor --acl`):
exactly these commands, on the keys of one namespace. The commands of the scripts are read from the scripts, so a
changed script changes the rule. The others are listed here; one test runs whole workers under the rule, another one
removes each command in turn.
"""

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from routebook.errors import StoreUnsuitableError
from routebook.store.connection.client import StoreClient, StoreReplyError
from routebook.store.connection.url import Layout, StoreUrl
from routebook.store.keys import Keys
from routebook.store.namespace import ScriptSet

MIN_VERSION = (6, 2)
"""For XTRIM by id and for `ZADD … GT`."""
MIN_VALKEY_VERSION = (7, 2)
"""The first Valkey, which is Redis 7.2."""

_EMPTY_SCRIPT_SHA1 = hashlib.sha1(b"return", usedforsecurity=False).hexdigest()
_PROBES = (
    "TIME; SCRIPT LOAD return; EVAL return 1 text",
    f"EVALSHA {_EMPTY_SCRIPT_SHA1} 1 text",
    "SET text 1; SETNX text 1; GET text; TYPE text; EXISTS text; PEXPIRE text 60000; PTTL text; PERSIST text",
    "SET other 1; RENAME other text",
    "HSET hash f 1; PEXPIRE hash 60000; HSETNX hash f 1; HGET hash f; HMGET hash f; HGETALL hash",
    "HLEN hash; HEXISTS hash f",
    "HINCRBY hash f 1; HSCAN hash 0; HDEL hash f",
    "SADD set m; PEXPIRE set 60000; SISMEMBER set m; SMEMBERS set; SCARD set; SSCAN set 0; SREM set m",
    "ZADD zset 1 m; PEXPIRE zset 60000; ZSCORE zset m; ZMSCORE zset m; ZCARD zset; ZCOUNT zset 0 1; ZRANGE zset 0 1",
    "ZRANGEBYSCORE zset 0 1; ZREM zset m; ZREMRANGEBYSCORE zset 0 1",
    "XADD stream * d v; PEXPIRE stream 60000; XLEN stream; XRANGE stream - +; XREVRANGE stream + -",
    "XREAD STREAMS stream $; XTRIM stream MINID ~ 1",
    "UNLINK text other hash set zset stream; DEL text",
)
"""Commands on the keys of `probes`. A test compares them with the commands of the scripts."""

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    subject: str
    message: str
    advice: str = ""
    command: str = ""
    """What to type to fix it, or to see more of it."""


_DISK_TROUBLE: Final = Finding(
    "error",
    "persistence",
    "The store cannot write its data to disk.",
    "Check its log and its free disk space; it refuses writes until it can.",
)


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store reports about itself; empty or None where its user lacks the permission."""

    server: str
    version: str
    max_memory_bytes: int
    eviction_policy: str
    append_only: bool | None
    replicas: int
    min_replicas: int | None
    disk_trouble: bool
    refused_commands: tuple[str, ...]

    def __str__(self) -> str:
        kept = {True: "append-only file", False: "no append-only file", None: "persistence unknown"}[self.append_only]
        return f"{self.server} {self.version or 'of unknown version'}, {kept}, {self.replicas} replicas"


async def check_store(client: StoreClient, namespace: str) -> StoreFacts:
    """Raise StoreUnsuitableError with everything that has to be changed first."""
    facts = await read_facts(client, namespace)
    errors = [finding for finding in judge(facts, namespace) if finding.level == "error"]
    if errors:
        raise StoreUnsuitableError(
            " ".join(finding.message for finding in errors), advice=" ".join(finding.advice for finding in errors)
        )
    return facts


async def diagnose(client: StoreClient, namespace: str) -> list[Finding]:
    return list(judge(await read_facts(client, namespace), namespace))


async def read_facts(client: StoreClient, namespace: str) -> StoreFacts:
    info = await _read_info(client)
    valkey = info.get("server_name") == "valkey" or "valkey_version" in info
    return StoreFacts(
        server="Valkey" if valkey else "Redis",
        version=info.get("valkey_version") or info.get("redis_version", ""),
        max_memory_bytes=int(info.get("maxmemory", 0)),
        eviction_policy=info.get("maxmemory_policy", ""),
        append_only=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        replicas=int(info.get("connected_slaves", 0)),
        min_replicas=await _read_min_replicas(client),
        disk_trouble=_has_disk_trouble(info),
        refused_commands=await _probe(client, namespace),
    )


@dataclass(frozen=True, slots=True)
class StoreState:
    """What may change while the store runs; empty or 0 where its user lacks the permission."""

    role: str
    eviction_policy: str
    max_memory_bytes: int
    used_memory_bytes: int
    disk_trouble: bool


MEMORY_ALARM_SHARE: Final = 0.9
"""From this share of maxmemory on: soon after, the store refuses every write."""


async def read_state(client: StoreClient) -> StoreState:
    info = await _read_info(client)
    return StoreState(
        role=info.get("role", ""),
        eviction_policy=info.get("maxmemory_policy", ""),
        max_memory_bytes=int(info.get("maxmemory", 0)),
        used_memory_bytes=int(info.get("used_memory", 0)),
        disk_trouble=_has_disk_trouble(info),
    )


def find_alarms(state: StoreState) -> dict[str, Finding]:
    """By kind, as the metric `routebook_store_alarm` names them."""
    found: dict[str, Finding] = {}
    if state.eviction_policy not in ("", "noeviction"):
        found["eviction"] = _evicting(state.eviction_policy)
    if state.max_memory_bytes and state.used_memory_bytes >= MEMORY_ALARM_SHARE * state.max_memory_bytes:
        used, limit = state.used_memory_bytes >> 20, state.max_memory_bytes >> 20
        message = f"The store uses {used} of {limit} MiB; at its maxmemory it refuses all writes."
        found["memory"] = Finding("error", "memory", message, "Raise maxmemory, or free memory there.")
    if state.role not in ("", "master"):
        message = f"The server in use is a {state.role} now, not the primary: it refuses writes."
        found["role"] = Finding("error", "role", message, "Name the primary, or use sentinel:// or cluster://.")
    if state.disk_trouble:
        found["disk"] = _DISK_TROUBLE
    return found


def _has_disk_trouble(info: Mapping[str, str]) -> bool:
    return "err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status"))


def judge(facts: StoreFacts, namespace: str) -> Iterator[Finding]:
    """Applies the rules to facts, without contacting the store."""
    yield _judge_version(facts)
    yield _judge_memory(facts)
    yield _judge_permission(facts, namespace)
    yield _judge_persistence(facts)
    if facts.replicas:
        yield _judge_replicas(facts)


def _judge_version(facts: StoreFacts) -> Finding:
    name = f"{facts.server} {facts.version}"
    if not facts.version:
        advice = "Grant it INFO, or check the version by hand."
        return Finding("warning", "store version", "The store's user has no permission to read its version.", advice)
    least = MIN_VALKEY_VERSION if facts.server == "Valkey" else MIN_VERSION
    if _numbers(facts.version) < least:
        needed = ".".join(map(str, least))
        advice = f"Use {facts.server} {needed} or newer."
        return Finding("error", "store version", f"The store is {name}, older than {needed}.", advice)
    return Finding("ok", "store version", f"The store is {name}.")


def _judge_memory(facts: StoreFacts) -> Finding:
    policy = facts.eviction_policy
    if policy and policy != "noeviction":
        return _evicting(policy)
    if not policy:
        advice = "Check that maxmemory-policy is noeviction."
        return Finding(
            "warning", "eviction policy", "The store's user has no permission to read its eviction policy.", advice
        )
    limit = f"at most {facts.max_memory_bytes >> 20} MiB" if facts.max_memory_bytes else "unlimited"
    return Finding("ok", "eviction policy", f"Nothing is evicted; memory is {limit}.")


def _evicting(policy: str) -> Finding:
    message = f"The store's maxmemory-policy is {policy}: when memory is short it would delete brokers and topics."
    advice = "Set it: CONFIG SET maxmemory-policy noeviction, and the same in its configuration file."
    return Finding("error", "eviction policy", message, advice)


def _judge_permission(facts: StoreFacts, namespace: str) -> Finding:
    if not facts.refused_commands:
        return Finding("ok", "permission", "The store's user has all permissions that are needed.")
    message = f"The store's user lacks {', '.join(facts.refused_commands)} on the keys of namespace {namespace}."
    advice = "`routebook doctor --acl` prints the ACL rule that is needed; run its line with redis-cli."
    return Finding("error", "permission", message, advice)


def _judge_persistence(facts: StoreFacts) -> Finding:
    if facts.disk_trouble:
        return _DISK_TROUBLE
    if facts.append_only is None:
        advice = "Check that appendonly is yes."
        message = "The store's user has no permission to read whether the store keeps its data on disk."
        return Finding("warning", "persistence", message, advice)
    if not facts.append_only:
        message = "The store's append-only file is off: a restart loses what was written since its last snapshot."
        advice = "Set it: CONFIG SET appendonly yes. Without it brokers and workers fill the route table again."
        return Finding("warning", "persistence", message, advice)
    return Finding("ok", "persistence", "The store keeps an append-only file.")


def _judge_replicas(facts: StoreFacts) -> Finding:
    if facts.min_replicas == 0:
        message = f"The store has {facts.replicas} replicas, but accepts writes when it is cut off from all of them."
        advice = "Set it: CONFIG SET min-replicas-to-write 1, so that an old primary refuses writes that would be lost."
        return Finding("warning", "replicas", message, advice)
    return Finding("ok", "replicas", f"{facts.replicas} replicas are connected.")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


async def _read_info(client: StoreClient) -> Mapping[str, str]:
    """Without permission for INFO: what HELLO replies, which needs none."""
    try:
        text = (await client.call("INFO")).decode(errors="replace")
    except StoreReplyError:
        return await _read_greeting(client)
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, separator, value in pairs if separator}


async def _read_greeting(client: StoreClient) -> Mapping[str, str]:
    try:
        reply = await client.call("HELLO", 2)
    except StoreReplyError:
        return {}
    greeting = {str(name, "utf8"): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    server, version = greeting.get("server", b"").decode(), greeting.get("version", b"").decode()
    return {"server_name": server, f"{server}_version": version}


async def _read_min_replicas(client: StoreClient) -> int | None:
    try:
        reply = await client.call("CONFIG", "GET", "min-replicas-to-write")
    except StoreReplyError:
        return None
    return int(reply[1]) if reply else None


def probes(namespace: str) -> list[list[str]]:
    """Each command that Routebook uses, once, on keys of the namespace with a random name: workers that start at the
    same time do not disturb each other. The keys expire if the start is interrupted.
    """
    keys = Keys(namespace)
    probe = f"probe:{secrets.token_hex(4)}"
    names = {kind: keys.of(probe, kind) for kind in ("text", "other", "hash", "set", "zset", "stream")}
    commands = "; ".join(_PROBES).split("; ")
    return [[names.get(word, word) for word in command.split()] for command in commands]


async def _probe(client: StoreClient, namespace: str) -> tuple[str, ...]:
    """The commands that were refused. They are sent one after the other: a pipeline reports only the first refusal."""
    refused = []
    for command in probes(namespace):
        try:
            await client.call(*command)
        except StoreReplyError as error:
            if error.code == "NOPERM":
                refused.append(command[0])
    return tuple(dict.fromkeys(refused))


_CALLED = re.compile(r"(?:redis\.p?call|call_in_slices)\(\s*'(\w+)'")

_CONNECTING: Final = ("client|setname", "ping", "role")
_SCRIPTS: Final = ("eval", "evalsha", "script|load")
_CHECKS: Final = ("config|get", "info", "time")
_READS: Final = ("get", "hget", "hgetall", "hlen", "hmget", "hscan", "smembers", "zmscore", "zrange", "zscore")
_READS_OF_THE_HISTORY: Final = ("xlen", "xrange", "xread", "xrevrange")
_TRIMMING: Final = ("hdel", "xtrim", "zremrangebyscore")

DEFAULT_USER: Final = "routebook"


def commands_of_scripts(scripts: ScriptSet) -> set[str]:
    return {command.lower() for name in scripts.names for command in _CALLED.findall(scripts[name].source)}


def needed_commands(scripts: ScriptSet, url: StoreUrl) -> list[str]:
    needed = {*_CONNECTING, *_SCRIPTS, *_CHECKS, *_READS, *_READS_OF_THE_HISTORY, *_TRIMMING}
    needed |= commands_of_scripts(scripts)
    if url.db:
        needed.add("select")
    if url.layout is Layout.CLUSTER:
        needed.add("cluster|slots")
    return sorted(needed)


def acl_rules(scripts: ScriptSet, url: StoreUrl, namespace: str) -> list[str]:
    """The words after the user's name in `ACL SETUSER`. They replace all permissions of the user but no password."""
    keys = Keys(namespace).table("*")
    commands = [f"+{command}" for command in needed_commands(scripts, url)]
    return ["on", "resetkeys", f"~{keys}", "resetchannels", "nocommands", *commands]


def acl_commands(scripts: ScriptSet, url: StoreUrl, namespace: str) -> list[str]:
    """Lines for redis-cli, without passwords."""
    user = url.credentials.username or DEFAULT_USER
    lines = [" ".join(["ACL SETUSER", user, *acl_rules(scripts, url, namespace)])]
    if url.layout is Layout.SENTINEL and (sentinel_user := url.sentinel_credentials.username):
        lines.append(f"ACL SETUSER {sentinel_user} on resetchannels nocommands +sentinel|get-master-addr-by-name")
    return lines
