"""What `routebook doctor` checks; each finding has its advice. And for `-p`: the run-time settings in the store."""

import asyncio
import platform
import resource
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version as installed_version
from typing import Any, Final

import httpx

from routebook import __version__
from routebook.errors import RoutebookError
from routebook.registry.identities import OPEN_ACCESS
from routebook.settings import Loaded, Settings, catalogue
from routebook.store.checks import Finding, Level, acl_commands, diagnose
from routebook.store.connection.client import StoreClient, StoreReplyError
from routebook.store.connection.url import Layout, StoreUrl
from routebook.store.embedded import find_server
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_settings


def read_run_time_settings(loaded: Loaded) -> dict[str, str]:
    """Raises StoreUnavailableError when the store cannot be asked."""
    return asyncio.run(_read(loaded))


async def _read(loaded: Loaded) -> dict[str, str]:
    settings = loaded.settings
    keys = Keys(settings.namespace)
    client = StoreClient(StoreUrl.parse(settings.redis_url), slot_key=keys.meta, timeout_ms=settings.store_timeout_ms)
    try:
        await client.open()
        return await read_settings(Namespace(client, keys, ScriptSet.load()))
    finally:
        await client.close()


FEW_DESCRIPTORS = 4096
"""A worker needs one a connection; brokers and clients of a middling fleet are thousands."""
CLOCK_SKEW_SECONDS = 2.0
_HTTP_SECONDS = 3.0


def acl_lines(settings: Settings) -> list[str]:
    """Commands for redis-cli that give the store's user the permissions of a worker."""
    url = StoreUrl.parse(settings.redis_url) if settings.redis_url else StoreUrl(Layout.SINGLE)
    return acl_commands(ScriptSet.load(), url, settings.namespace)


def diagnose_machine(settings: Settings) -> list[Finding]:
    return [_versions(), _descriptors(), *_ports(settings)]


async def diagnose_store(settings: Settings) -> tuple[list[Finding], bool]:
    """And whether it was reached; true as well when there is none to reach."""
    if not settings.redis_url:
        return [_embedded()], True
    try:
        url = StoreUrl.parse(settings.redis_url)
    except RoutebookError as error:
        return [Finding("error", "store", error.message, error.advice)], True
    client = StoreClient(url, slot_key=Keys(settings.namespace).meta, timeout_ms=max(settings.store_timeout_ms, 1000))
    try:
        await client.open()
        findings = [Finding("ok", "store", f"reached at {url.masked()}"), await _clock(client)]
        findings += await diagnose(client, settings.namespace)
    except RoutebookError as error:
        return [Finding("error", "store", error.message, error.advice)], False
    finally:
        await client.close()
    return findings, True


LAG_SECONDS: Final = 5.0
"""A worker that is further behind is reported; a change reaches all workers within a second."""

_CLOSE_ACCESS: Final = {
    "registration": "routebook token create NAME --role broker",
    "remoting-administration": "routebook serve --remoting-admin signed",
}


def judge_status(url: str, status: dict[str, Any]) -> Iterator[Finding]:
    """What `/v1/status` says of the service."""
    yield Finding("ok", "service", f"answers at {url}, version {status['version']} of the table")
    yield from _judge_replica(status)
    yield from _judge_leader(status)
    for kind, text in status.get("store_alarms", {}).items():
        advice = "The alarm ends by itself when this is put right."
        yield Finding("error", f"store {kind}", text, advice, "routebook doctor --redis-url URL")
    if lost := status.get("self_check", {}).get("last_difference"):
        message = f"self-checks had to write back what was deleted from the store, last {lost}"
        advice = "Find out what deletes keys of this namespace: another program, a script, an eviction."
        yield Finding("warning", "self-check", message, advice, "routebook changes --last 20")
    yield from _judge_workers(status.get("workers", []))
    for what in status.get("open_to_all", []):
        advice = "Fine in a network that only the fleet can reach; otherwise see docs/security.md."
        command = _CLOSE_ACCESS.get(what, "routebook settings list")
        yield Finding("warning", "access", OPEN_ACCESS.get(what, what), advice, command)


def _judge_replica(status: dict[str, Any]) -> Iterator[Finding]:
    check_store = "routebook doctor --redis-url URL"
    if not status["complete"]:
        advice = "Look at the store, and at the worker's log."
        yield Finding("error", "replica", "its table is not complete", advice, check_store)
    if status["stale_seconds"] > 0:
        advice = "Answers come from memory meanwhile, writes are refused. Look at the store and the way to it."
        message = f"out of touch with the store for {status['stale_seconds']:.0f} s"
        yield Finding("error", "replica", message, advice, check_store)
    if status.get("recovering"):
        advice = "The workers restore it, and brokers register again; see docs/operations.md."
        yield Finding("error", "recovery", "the store lost data", advice, "routebook changes --since 1h")


def _judge_leader(status: dict[str, Any]) -> Iterator[Finding]:
    if status["expiry_held"]:
        advice = "If they really are dead: `routebook expiry release`; if not, look at the network between."
        message = "held: too many brokers would be removed at once; `routebook expiry status` names them"
        yield Finding("error", "expiry", message, advice, "routebook expiry release")
    elif status["expiry_held"] is not None and not status["leader"]:
        advice = "Look again after ten seconds."
        yield Finding("warning", "leader", "no worker leads at the moment", advice, "routebook status")


def _judge_workers(workers: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    others = sorted(_versions_of(workers) - {__version__})
    if others:
        message = f"workers of another version than this command ({__version__}): {', '.join(others)}"
        advice = "Fine during an upgrade; else bring all to one version."
        yield Finding("warning", "versions", message, advice, f"pip install routebook=={others[-1]}")
    digests = dict[int, set[str]]()
    for worker in workers:
        name, about = worker.get("worker", ""), worker.get("about", {})
        figures, table = about.get("figures", {}), about.get("table", {})
        if not worker.get("alive", True):
            advice = "Its lease ended without a deregistration. It is removed by itself, and its brokers are checked."
            yield Finding("warning", "worker", f"{name} is dead", advice, "routebook status")
            continue
        if figures.get("lag_seconds", 0) > LAG_SECONDS:
            message = f"{name} is {figures['lag_seconds']:.0f} s behind ({figures['lag_changes']} changes)"
            advice = "It is overloaded, or its way to the store is slow."
            yield Finding("error", "worker", message, advice, "routebook top")
        digests.setdefault(table.get("version", 0), set()).add(table.get("digest", ""))
    if versions := [version for version, found in digests.items() if len(found) > 1]:
        message = f"workers have different tables at version {versions[0]}"
        advice = "Restart the worker whose digest differs from the others: it loads the table again."
        yield Finding("error", "digest", message, advice, "routebook status -o json")


def judge_fleet(groups: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    """What `/v1/brokers` says of the brokers: one finding for each kind of trouble, with the first names."""
    by_health = dict[str, list[str]]()
    without_master, read_only = list[str](), list[str]()
    for group in groups:
        for one in group["members"]:
            by_health.setdefault(one["health"], []).append(f"{group['name']}/{one['id']}")
        if all(one["role"] == "slave" for one in group["members"]):
            without_master.append(group["name"])
        if group["topics"] and not group["writable_topics"]:
            read_only.append(group["name"])
    number = sum(len(names) for names in by_health.values())
    yield Finding("ok", "brokers", f"{len(by_health.get('ok', ()))} of {number} have sent heartbeats in time")
    for health, level in _HEALTH_LEVELS.items():
        if names := by_health.get(health):
            advice = "Look at its last heartbeat, its connection and its changes."
            command = f"routebook describe broker {names[0]}"
            yield Finding(level, "brokers", f"{health}: {_first(names)}", advice, command)
    if without_master:
        message = f"groups without a master, to which nothing can be sent: {_first(without_master)}"
        advice = "Start the master, or let a slave become master."
        yield Finding("error", "brokers", message, advice, f"routebook describe group {without_master[0]}")
    if read_only:
        message = f"groups of which no topic may be written: {_first(read_only)}"
        advice = "Intended during maintenance; afterwards allow it again."
        yield Finding("warning", "brokers", message, advice, f"routebook write-permission {read_only[0]} on")


_HEALTH_LEVELS: Final[dict[str, Level]] = {
    "silent": "error",
    "held": "error",
    "disconnected": "warning",
    "late": "warning",
    "unknown": "warning",
}
_NAMES_SHOWN: Final = 5


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _versions_of(workers: Sequence[dict[str, Any]]) -> set[str]:
    alive = (worker.get("about", {}) for worker in workers if worker.get("alive", True))
    return {str(about["version"]) for about in alive if about.get("version")}


def _versions() -> Finding:
    parts = [
        f"routebook {__version__}",
        f"Python {platform.python_version()}",
        f"redis-py {installed_version('redis')}",
    ]
    return Finding("ok", "versions", ", ".join([*parts, platform.platform(terse=True)]))


def _descriptors() -> Finding:
    """The hard limit counts: a start raises the other one itself, `descriptors.py`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return Finding("ok", "descriptors", "any number of open files allowed")
    if hard < FEW_DESCRIPTORS:
        advice = "`ulimit -Hn 65536` before the start, as root, or LimitNOFILE= of the unit."
        return Finding("warning", "descriptors", f"only {hard} open files allowed, one a connection", advice)
    return Finding("ok", "descriptors", f"{hard} open files allowed")


def _ports(settings: Settings) -> Iterator[Finding]:
    public = settings.bind_address
    for name, host in (("remoting_port", public), ("http_port", public), ("admin_port", settings.admin_host)):
        port = getattr(settings, name)
        if port:
            yield _port(name, host, port, settings)


def _port(name: str, host: str, port: int, settings: Settings) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _is_routebook(name, settings):
                return Finding("ok", name, f"{port}: a Routebook listens there")
            one = catalogue.find(name)
            advice = f"Stop what holds it, or choose another with {one.flag} or {one.variable}."
            return Finding("warning", name, f"{port} cannot be taken: {error.strerror}", advice)
    return Finding("ok", name, f"{port} is free")


def _is_routebook(name: str, settings: Settings) -> bool:
    """Of RocketMQ's port the service behind the HTTP port says whether it is its own."""
    asked = f"{settings.admin_port}/livez" if name == "admin_port" else f"{settings.http_port}/v1/status"
    try:
        answer = httpx.get(f"http://127.0.0.1:{asked}", timeout=_HTTP_SECONDS, trust_env=False)
    except httpx.HTTPError:
        return False
    if name != "remoting_port" or not answer.is_success:
        return answer.is_success
    return any(worker["about"].get("remoting_port") == settings.remoting_port for worker in answer.json()["workers"])


def _embedded() -> Finding:
    try:
        return Finding("ok", "store", f"none named; `routebook up` would start {find_server()}")
    except RoutebookError as error:
        return Finding("warning", "store", error.message, error.advice)


async def _clock(client: StoreClient) -> Finding:
    before = time.time()
    try:
        seconds, micros = await client.call("TIME")
    except StoreReplyError as error:
        return Finding("warning", "clock", f"the store's clock cannot be asked: {error.message}", error.advice)
    skew = int(seconds) + int(micros) / 1e6 - (before + time.time()) / 2
    if abs(skew) > CLOCK_SKEW_SECONDS:
        advice = (
            "No broker expires by it (only the store's clock counts), but logs disagree: set up time synchronisation."
        )
        return Finding("warning", "clock", f"the store's clock is {skew:+.1f} s from this machine's", advice)
    return Finding("ok", "clock", f"the store's clock is {skew:+.3f} s from this machine's")
