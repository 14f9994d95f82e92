"""What `routebook doctor` checks; each finding has its advice. And for `-p`: the run-time settings in the store."""

import asyncio
import platform
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from importlib.metadata import version as installed_version
from typing import Any

import httpx

from routebook import __version__
from routebook.errors import RoutebookError
from routebook.registry.identities import OPEN_ACCESS
from routebook.settings import Loaded, Settings, catalogue
from routebook.store.acl import acl_commands
from routebook.store.checks import Finding, diagnose
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


def diagnose_service(url: str, token: str, verify: ssl.SSLContext | bool) -> list[Finding]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(
            f"{url.rstrip('/')}/v1/status",
            headers=headers,
            timeout=_HTTP_SECONDS,
            trust_env=False,
            verify=verify,
        )
        answer.raise_for_status()
        status = answer.json()
    except (httpx.TransportError, httpx.InvalidURL):
        return [Finding("warning", "service", f"no answer at {url}", "Start the service, or name another with --url.")]
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (401, 403, 429):
            advice = "Set ROUTEBOOK_TOKEN to a token of this service (`routebook token create`)."
            return [Finding("error", "service", f"the service at {url} refuses the token, or demands one", advice)]
        return [_no_routebook(url)]
    except ValueError:
        return [_no_routebook(url)]
    return list(judge_status(url, status))


def _no_routebook(url: str) -> Finding:
    return Finding("error", "service", f"the server at {url} is not a Routebook", "Name its HTTP port with --url.")


def judge_status(url: str, status: dict[str, Any]) -> Iterator[Finding]:
    yield Finding("ok", "service", f"answers at {url}, version {status['version']} of the table")
    if not status["complete"]:
        yield Finding("error", "replica", "its table is not complete", "Look at the store, and at the worker's log.")
    if status["stale_seconds"] > 1:
        advice = "Answers come from memory meanwhile, writes are refused. Look at the store and the way to it."
        yield Finding("error", "replica", f"out of touch with the store for {status['stale_seconds']:.0f} s", advice)
    for what in status.get("open_to_all", []):
        advice = "Fine in a network that only the fleet can reach; otherwise see docs/security.md."
        yield Finding("warning", "access", OPEN_ACCESS.get(what, what), advice)
    if status["expiry_held"]:
        advice = "If they really are dead: `routebook expiry release`; if not, look at the network between."
        yield Finding(
            "error",
            "expiry",
            "held: too many brokers would be removed at once; `routebook expiry status` names them",
            advice,
        )
    elif status["expiry_held"] is not None and not status["leader"]:
        yield Finding("warning", "leader", "no worker leads at the moment", "Look again after ten seconds.")
    for kind, text in status.get("store_alarms", {}).items():
        yield Finding("error", f"store {kind}", text, "The alarm ends by itself when this is put right.")
    if lost := status.get("self_check", {}).get("last_difference"):
        message = f"self-checks had to write back what was deleted from the store, last {lost}"
        advice = "Find out what deletes keys of this namespace: another program, a script, an eviction."
        yield Finding("warning", "self-check", message, advice)
    others = sorted(_versions_of(status) - {__version__})
    if others:
        advice = "Fine during an upgrade; else bring all to one version."
        yield Finding("warning", "versions", f"workers of another version: {', '.join(others)}", advice)


def _versions_of(status: dict[str, Any]) -> set[str]:
    found = set()
    for worker in status.get("workers", []):
        about = worker.get("about", worker)
        if worker.get("alive", True) and about.get("version"):
            found.add(str(about["version"]))
    return found


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
