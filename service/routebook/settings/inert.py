"""Properties of Apache's name server without effect here: checked for their type, kept and shown."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from routebook.errors import SettingsError

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
