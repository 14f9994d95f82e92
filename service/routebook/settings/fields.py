"""Every setting: type, unit (in its name), default, range and the reason. The one home of each.

The flag, the variable and the TOML key follow from the name (`catalogue.py`); `_ms` are milliseconds.
"""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from routebook.errors import InvalidInputError
from routebook.model.names import check_address, check_namespace
from routebook.settings.masking import Secret

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

STORE_SCHEMES = (
    "redis://",
    "rediss://",
    "unix://",
    "sentinel://",
    "sentinels://",
    "cluster://",
    "clusters://",
)


@dataclass(frozen=True, slots=True)
class About:
    """What a type cannot say about a setting."""

    why: str
    """What it does and why the default is what it is."""
    properties_name: str = ""
    """The key of RocketMQ's own namesrv.conf that means the same."""
    at_run_time: bool = False
    """May be changed while running; the change lives in the store and reaches all workers."""
    allowed: str = ""
    """What is allowed, where the type's own range does not say it."""
    secret: Secret | None = None


def _namespace(text: str) -> str:
    try:
        return check_namespace(text)
    except InvalidInputError as error:
        raise ValueError(error.allowed) from error


def split_list(text: str) -> tuple[str, ...]:
    """Lists are written with commas or, as RocketMQ does, with semicolons."""
    return tuple(part.strip() for part in text.replace(";", ",").split(",") if part.strip())


def _addresses(text: str) -> str:
    parts = split_list(text)
    for part in parts:
        try:
            check_address("advertised_addresses", part)
        except InvalidInputError as error:
            raise ValueError(error.allowed) from error
    return ";".join(parts)


def _networks(text: str) -> str:
    return ",".join(str(ipaddress.ip_network(part, strict=False)) for part in split_list(text))


def _host(text: str) -> str:
    if not text or any(letter.isspace() or letter in "/[]" for letter in text):
        raise ValueError("not a host")
    return text


def _token(text: str) -> str:
    if not all("!" <= letter <= "~" for letter in text):
        raise ValueError("not printable")
    return text


def _store_url(text: str) -> str:
    if text and not text.startswith(STORE_SCHEMES):
        raise ValueError("unknown scheme")
    return text


Port = Annotated[int, Field(ge=0, le=65535)]
Interval = Annotated[int, Field(ge=10, le=3_600_000)]
Duration = Annotated[int, Field(ge=0, le=86_400_000)]
Host = Annotated[str, AfterValidator(_host)]

_HOST = "an IP address or a host name of this machine"


class Settings(BaseModel):
    """Effective settings of one process. Immutable: a change at run time makes a new one (`live.py`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    remoting_port: Annotated[
        Port,
        About(
            "RocketMQ's own port for brokers, clients and mqadmin; all expect 9876. 0 takes a free one.",
            properties_name="listenPort",
        ),
    ] = 9876
    http_port: Annotated[
        Port, About("HTTP API and watch. 0 takes a free one, named in the start line and in `status`.")
    ] = 8080
    admin_port: Annotated[
        Port, About("Health and metrics, never public. 0 takes a free one, named in the start line.")
    ] = 8081
    bind_address: Annotated[
        Host,
        About(
            "Address that the public ports listen on: loopback with `up`, all addresses with `serve`.",
            properties_name="bindAddress",
            allowed=_HOST,
        ),
    ] = "127.0.0.1"
    admin_host: Annotated[
        Host,
        About(
            "Address that the admin port listens on; loopback, because it asks nobody who he is.",
            allowed=_HOST,
        ),
    ] = "127.0.0.1"
    redis_url: Annotated[
        str,
        AfterValidator(_store_url),
        About(
            "The store. Empty: `up` starts an embedded one, `serve` needs one.",
            allowed="a URL that begins with " + ", ".join(STORE_SCHEMES),
            secret=Secret.URL,
        ),
    ] = Field(default="", repr=False)
    namespace: Annotated[
        str,
        AfterValidator(_namespace),
        About(
            "Prefix and hash slot of every key in the store: one fleet each.",
            allowed="1 to 64 of A-Z a-z 0-9 . _ -",
        ),
    ] = "default"
    workers: Annotated[
        int, Field(ge=1, le=256), About("Worker processes of one `serve`; one needs no second process.")
    ] = 1
    advertised_addresses: Annotated[
        str,
        AfterValidator(_addresses),
        About(
            "What /rocketmq/nsaddr names. Empty: the request's host and the remoting port.",
            allowed="host:port;host:port, IPv6 in brackets",
        ),
    ] = ""
    admin_token: Annotated[
        str,
        AfterValidator(_token),
        About(
            "Bearer token for administrative HTTP verbs from off loopback. Empty: nobody may.",
            allowed="printable ASCII letters without spaces",
            secret=Secret.WHOLE,
        ),
    ] = Field(default="", repr=False)
    proxy_from: Annotated[
        str,
        AfterValidator(_networks),
        About(
            "Networks whose PROXY headers are believed; loopback, because anyone can write such a header.",
            allowed="networks such as 10.0.0.0/8, separated by commas; empty for nobody",
        ),
    ] = "127.0.0.0/8,::1/128"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        About("Least level that is logged. info has one line a change of the table.", at_run_time=True),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], About("text for people, json (one object a line) for collectors.")
    ] = "text"
    broker_timeout_ms: Annotated[
        Annotated[int, Field(ge=1_000, le=86_400_000)],
        About(
            "A broker that named no timeout of its own leaves after this silence; Apache's two minutes.",
            at_run_time=True,
        ),
    ] = 120_000
    scan_not_active_broker_interval_ms: Annotated[
        Interval,
        About(
            "How often the leader looks for silent brokers; Apache's five seconds.",
            properties_name="scanNotActiveBrokerInterval",
        ),
    ] = 5_000
    lease_ms: Annotated[
        Annotated[int, Field(ge=200, le=600_000)],
        About(
            "Life of the leader's lease: a dead leader is followed after it. Shorter follows sooner, and "
            "changes leader at a shorter pause of the store."
        ),
    ] = 10_000
    hold_percent: Annotated[
        Annotated[int, Field(ge=0, le=100)],
        About(
            "More than this share of all instances due in one scan or within hold_window_ms (and hold_minimum of "
            "them) is held for an operator: that many do not die together, a network does.",
            at_run_time=True,
        ),
    ] = 30
    hold_window_ms: Annotated[
        Annotated[int, Field(ge=0, le=3_600_000)],
        About(
            "Expiries this close to each other count together: brokers that fall silent at once fall due spread over "
            "their registration period (30 s; two of them by default). 0: each scan by itself.",
            at_run_time=True,
        ),
    ] = 60_000
    hold_minimum: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)],
        About(
            "Fewer instances than this are never held: in a small fleet two dead ones are a large share.",
            at_run_time=True,
        ),
    ] = 5
    recovery_window_ms: Annotated[
        Duration,
        About("After the store lost its data, how long the old table is answered; five registration periods."),
    ] = 150_000
    warm_up_ms: Annotated[
        Duration,
        About("A cold worker on a young, empty store says `not ready` for `not found` this long. 0: not at all."),
    ] = 0
    store_timeout_ms: Annotated[
        Annotated[int, Field(ge=10, le=60_000)],
        About("Deadline of one call to the store; writes are refused after it, lookups do not need it."),
    ] = 1_000
    store_connections: Annotated[
        Annotated[int, Field(ge=1, le=1_000)],
        About("Most connections of one worker to the store; a script takes well below a millisecond."),
    ] = 8
    support_acting_master: Annotated[
        bool,
        About(
            "A group without a master answers its lowest slave as acting master; off as in Apache's.",
            properties_name="supportActingMaster",
            at_run_time=True,
        ),
    ] = False
    delete_topic_with_broker_registration: Annotated[
        bool,
        About(
            "A registration removes the topics it does not name; off as in Apache's.",
            properties_name="deleteTopicWithBrokerRegistration",
            at_run_time=True,
        ),
    ] = False
    order_message_enable: Annotated[
        bool,
        About(
            "Routes carry the order configuration of the topic.",
            properties_name="orderMessageEnable",
            at_run_time=True,
        ),
    ] = False
    return_order_topic_config_to_broker: Annotated[
        bool,
        About(
            "A registration is answered with the order configuration of all topics.",
            properties_name="returnOrderTopicConfigToBroker",
            at_run_time=True,
        ),
    ] = True
    kv_config_path: Annotated[
        str,
        About(
            "Apache's kvConfig.json, imported once into a store that never held key-values. Empty: none.",
            properties_name="kvConfigPath",
        ),
    ] = ""
    history_max_entries: Annotated[
        Annotated[int, Field(ge=1_000, le=1_000_000_000)],
        About(
            "Changes kept in the store: what watches resume from and later readers find. Some 30 MB of the usual size; "
            "a change of 1,000 topics alone takes 60 KB, so raise it with the store's memory in mind."
        ),
    ] = 100_000
    min_version_wait_ms: Annotated[
        Duration, About("How long a reader that names ?min_version= may wait for it. 0: not at all.")
    ] = 5_000
    request_timeout_ms: Annotated[
        Annotated[int, Field(ge=100, le=3_600_000)],
        About("A request must have arrived whole and be answered within this; uvicorn has no such deadline."),
    ] = 10_000
    max_body_bytes: Annotated[
        Annotated[int, Field(ge=1_024, le=1_073_741_824)],
        About("Largest request body in bytes: 64 MiB holds 70 000 topics several times over."),
    ] = 67_108_864
    drain_ms: Annotated[
        Duration,
        About("At a stop, how long requests under way may still take; the rest is cancelled and counted."),
    ] = 10_000
    data_dir: Annotated[
        Path, About("Folder of the embedded store of `up`; its data survive restarts.", allowed="a folder")
    ] = Path(".routebook")

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(part) for part in split_list(self.proxy_from))

    @property
    def advertised(self) -> tuple[str, ...]:
        return split_list(self.advertised_addresses)
