"""The settings file given with `-c`: TOML, or properties as RocketMQ writes them.

Properties are parsed as `java.util.Properties.load` parses them. Properties of Apache's name
server that have no effect here are checked for their type, kept and shown.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings import catalogue

Kind = Literal["true or false", "a whole number", "a text"]
BOOL: Kind = "true or false"
NUMBER: Kind = "a whole number"
TEXT: Kind = "a text"

CONTROLLER = "enableControllerInNamesrv"
CONFIG_STORE_PATH = "configStorePath"

_PATTERNS: dict[Kind, re.Pattern[str]] = {
    BOOL: re.compile("true|false", re.IGNORECASE),
    NUMBER: re.compile("[+-]?[0-9]{1,18}"),
    TEXT: re.compile(".*", re.DOTALL),
}

_LOOP = "an event loop serves all connections of a worker; `workers` says how many there are"
_NETTY = "a choice inside Netty"
_NO_CALLS = "Routebook sends no requests that need an answer to peers that connected to it"
_CLIENT = "an option of Apache's client; the few connections opened from here do not need it"
_SHORT = "a connection opened from here is closed after its request"
_LIBRARY = "the machine's TLS library decides"
_PEER = "a broker that is notified (905) is not authenticated, as in Apache's default"


@dataclass(frozen=True, slots=True)
class Inert:
    key: str
    kind: Kind
    default: str | None
    """Apache's default, returned by 319 when the file does not set it; None when Apache's 319 omits the key."""
    why: str
    """Why it has no effect here."""


_ALL = (
    Inert("rocketmqHome", TEXT, None, "nothing is read from there"),
    Inert(CONFIG_STORE_PATH, TEXT, "", "what 318 changes lives in the store"),
    Inert("productEnvName", TEXT, "center", "cluster_test_upstream names other name servers by address, not by unit"),
    Inert(CONTROLLER, BOOL, "false", "the controller runs as a process of its own"),
    Inert("serverWorkerThreads", NUMBER, "8", _LOOP),
    Inert("serverCallbackExecutorThreads", NUMBER, "0", _LOOP),
    Inert("serverSelectorThreads", NUMBER, "3", _LOOP),
    Inert("serverOnewaySemaphoreValue", NUMBER, "256", _NO_CALLS),
    Inert("serverAsyncSemaphoreValue", NUMBER, "64", _NO_CALLS),
    Inert("serverSocketBacklog", NUMBER, "1024", "Apache's does not apply it either; ours is 2048"),
    Inert("serverNettyWorkerGroupEnable", BOOL, "true", _NETTY),
    Inert("serverPooledByteBufAllocatorEnable", BOOL, "true", _NETTY),
    Inert("useEpollNativeSelector", BOOL, "false", _NETTY),
    Inert("clientChannelMaxIdleTimeSeconds", NUMBER, None, _SHORT),
    Inert("com.rocketmq.remoting.client.channel.maxIdleTimeSeconds", NUMBER, None, _SHORT),
    Inert("clientWorkerThreads", NUMBER, None, _CLIENT),
    Inert("clientCallbackExecutorThreads", NUMBER, None, _CLIENT),
    Inert("clientOnewaySemaphoreValue", NUMBER, None, _CLIENT),
    Inert("clientAsyncSemaphoreValue", NUMBER, None, _CLIENT),
    Inert("channelNotActiveInterval", NUMBER, None, _CLIENT),
    Inert("isScanAvailableNameSrv", BOOL, None, _CLIENT),
    Inert("clientSocketSndBufSize", NUMBER, None, _CLIENT),
    Inert("clientSocketRcvBufSize", NUMBER, None, _CLIENT),
    Inert("clientPooledByteBufAllocatorEnable", BOOL, None, _CLIENT),
    Inert("clientCloseSocketIfTimeout", BOOL, None, _CLIENT),
    Inert("socksProxyConfig", TEXT, None, _CLIENT),
    Inert("disableCallbackExecutor", BOOL, None, _CLIENT),
    Inert("disableNettyWorkerGroup", BOOL, None, _CLIENT),
    Inert("maxReconnectIntervalTimeSeconds", NUMBER, None, _CLIENT),
    Inert("enableReconnectForGoAway", BOOL, None, _CLIENT),
    Inert("com.rocketmq.remoting.nettyPooledByteBufAllocatorEnable", BOOL, None, _NETTY),
    Inert("com.rocketmq.remoting.socket.backlog", NUMBER, None, "Apache's does not apply it either; ours is 2048"),
    Inert("com.rocketmq.remoting.clientAsyncSemaphoreValue", NUMBER, None, _CLIENT),
    Inert("com.rocketmq.remoting.clientOnewaySemaphoreValue", NUMBER, None, _CLIENT),
    Inert("com.rocketmq.remoting.client.worker.size", NUMBER, None, _CLIENT),
    Inert("com.rocketmq.remoting.client.closeSocketIfTimeout", BOOL, None, _CLIENT),
    Inert("tls.ciphers", TEXT, None, _LIBRARY),
    Inert("tls.protocols", TEXT, None, _LIBRARY),
    Inert("tls.client.keyPath", TEXT, None, _PEER),
    Inert("tls.client.keyPassword", TEXT, None, _PEER),
    Inert("tls.client.certPath", TEXT, None, _PEER),
    Inert("tls.client.authServer", BOOL, None, _PEER),
    Inert("tls.client.trustCertPath", TEXT, None, _PEER),
)


@cache
def inert_properties() -> dict[str, Inert]:
    return {one.key: one for one in _ALL}


def reason(key: str) -> str:
    """Why a kept property has no effect."""
    one = inert_properties().get(key)
    return one.why if one else "unknown"


def check_kept(kept: Mapping[str, str], file: object) -> None:
    """Raises for a value that Apache's name server would refuse, and for a feature that we do not have."""
    for key, text in kept.items():
        one = inert_properties().get(key)
        if one and not _PATTERNS[one.kind].fullmatch(text.strip()):
            raise SettingsError(f"{key} is {text!r} (from {file}).", advice=f"Allowed: {one.kind}.")
    if kept.get(CONTROLLER, "").strip().lower() == "true":
        raise SettingsError(
            f"{CONTROLLER} is true (from {file}): Routebook contains no controller.",
            advice="Run Apache's controller beside it (mqcontroller, with brokers' controllerAddr naming it), "
            f"and set {CONTROLLER}=false.",
        )


def shown_by_apache(config_file: str) -> dict[str, str]:
    """The values that Apache's 319 returns when the file does not set them. configStorePath is the file itself."""
    shown = {one.key: one.default for one in _ALL if one.default is not None}
    store_path = config_file or os.path.join(os.path.expanduser("~"), "namesrv", "namesrv.properties")
    return shown | {CONFIG_STORE_PATH: store_path}


_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


def parse_properties(text: str) -> dict[str, str]:
    """The last of two equal keys wins. Raises ValueError on a broken \\uXXXX, as Java does."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Drops comments and joins continued lines. A comment is never continued; a continuation may look like one."""
    gathered: str | None = None
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANK)
        if gathered is None and (not line or line[0] in "#!"):
            continue
        gathered = (gathered or "") + line
        if _ends_in_odd_backslashes(line):
            gathered = gathered[:-1]
            continue
        yield gathered
        gathered = None
    if gathered is not None:
        yield gathered


def _ends_in_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """The key ends at the first unescaped `=`, `:` or blank; one `=` or `:` may follow blanks."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    letters: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter != "\\":
            letters.append(letter)
            at += 1
            continue
        following = text[at + 1 : at + 2]
        if following == "u":
            letters.append(_unicode(text[at + 2 : at + 6]))
            at += 6
        else:
            letters.append(_CONTROL.get(following, following))
            at += 2
    return "".join(letters)


def _unicode(digits: str) -> str:
    if not _UNICODE.fullmatch(digits):
        raise ValueError(f"\\u{digits} is not a letter: four hexadecimal digits must follow \\u")
    return chr(int(digits, 16))


OWN_PREFIX = "routebook."
"""Prefix of our own names among RocketMQ's properties."""

_FIRST_PARTS = {"com", "rocketmq", "routebook", "tls"}
_PROPERTIES_SUFFIXES = (".properties", ".conf")


@dataclass(frozen=True, slots=True)
class FileContent:
    known: dict[str, str] = field(default_factory=dict)
    """Our name -> text."""
    where: dict[str, str] = field(default_factory=dict)
    """Our name -> its place: the file, and RocketMQ's key if that was used."""
    kept: dict[str, str] = field(default_factory=dict)
    """Properties that are not our settings: kept and shown, without effect."""


def read_file(path: Path) -> FileContent:
    text = _read(path, "Name a TOML or a RocketMQ properties file with -c.")
    table = None if path.suffix.lower() in _PROPERTIES_SUFFIXES else _toml(path, text)
    return _from_properties(path, text) if table is None else _from_toml(path, table)


def read_tls_file(path: Path) -> FileContent:
    """Reads the file named by `tls.config.file`: always properties, and only those about TLS."""
    content = _from_properties(path, _read(path, "Correct tls_config_file (tls.config.file)."))
    known = {name: text for name, text in content.known.items() if name.startswith("tls_")}
    kept = {key: value for key, value in content.kept.items() if key.startswith("tls.")}
    return FileContent(known, content.where, kept)


def _read(path: Path, advice: str) -> str:
    try:
        return _decode(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.", advice=advice) from error


def _decode(raw: bytes) -> str:
    """Decodes UTF-8, else Latin-1, which is how Java reads properties."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _toml(path: Path, text: str) -> dict[str, Any] | None:
    """None when the content is properties: the name is not .toml, and it has RocketMQ's keys or is not TOML."""
    surely_toml = path.suffix.lower() == ".toml"
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if surely_toml:
            raise SettingsError(
                f"The settings file {path} is not TOML: {error}.",
                advice="Correct the line, or name it .properties.",
            ) from error
        return None
    return table if surely_toml or not _is_rocketmqs(table) else None


def _is_rocketmqs(table: dict[str, Any]) -> bool:
    """`listenPort=9876` is also valid TOML, and `com.rocketmq.x=1` is a table named com."""
    keys = catalogue.names_of_properties().keys() | inert_properties().keys()
    return any(key in keys or (key in _FIRST_PARTS and isinstance(value, dict)) for key, value in table.items())


def _from_toml(path: Path, table: dict[str, Any]) -> FileContent:
    content = FileContent()
    for key, value in table.items():
        text = _toml_text(value)
        one = catalogue.find(key, f"{key} in {path}", text)
        if isinstance(value, dict):
            raise SettingsError(f"{key} in {path} is a table.", advice=f"Allowed: {one.allowed}.")
        content.known[key] = text
        content.where[key] = str(path)
    return content


def _toml_text(value: Any) -> str:
    """All sources deliver text, parsed in one place. So `true` is refused as a port and 1.5 as a number of workers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def _from_properties(path: Path, text: str) -> FileContent:
    try:
        found = parse_properties(text)
    except ValueError as error:
        raise SettingsError(f"The settings file {path} is broken: {error}.", advice="Correct it.") from error
    content = FileContent()
    weaker = catalogue.weaker_names_of_properties()
    for key, value in sorted(found.items(), key=lambda item: item[0] in weaker):
        _take(content, path, key, value)
    return content


def _take(content: FileContent, path: Path, key: str, value: str) -> None:
    # Our own names are accepted too, also as 319 writes them, so that a migrating fleet keeps one file.
    own = key.removeprefix(OWN_PREFIX)
    if own in catalogue.all_settings():
        content.known[own], content.where[own] = value, str(path)
        return
    weaker = catalogue.weaker_names_of_properties().get(key)
    name = weaker or catalogue.names_of_properties().get(key)
    if name is None:
        content.kept[key] = value
        return
    if weaker and name in content.known:
        return
    where = f"{key} in {path}"
    try:
        content.known[name] = catalogue.find(name).from_properties(value)
    except InvalidInputError as error:
        raise catalogue.refused(error, where) from None
    content.where[name] = where
