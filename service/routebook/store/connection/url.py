"""Store addresses: parsed from the setting, and printed without secrets.

    redis[s]://[[user]:password@]host[:port][/db]
    unix://[[user]:password@]/path/of/socket[?db=0]
    sentinel[s]://[[user]:password@]host[:port],host[:port]/<master>[/db]
    cluster[s]://[[user]:password@]host[:port],host[:port]

Options (query): with TLS `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_password`, `ssl_cert_reqs`
(required, none), `ssl_check_hostname` (true, false); with Sentinel the sentinels' own `sentinel_username`,
`sentinel_password`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NoReturn
from urllib.parse import parse_qsl, quote, unquote

from routebook.errors import SettingsError

REDIS_PORT = 6379
SENTINEL_PORT = 26379
MAX_DB = 2**31 - 1
TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"}
)

_URL = re.compile(
    r"(?P<scheme>[a-z]+)://(?:(?P<credentials>[^/?]*)@)?(?P<hosts>[^/?@]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")


class Address(NamedTuple):
    """Host and port of one server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Layout(Enum):
    """How the primary is found."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_SCHEMES: Mapping[str, tuple[Layout, bool]] = {
    "redis": (Layout.SINGLE, False),
    "rediss": (Layout.SINGLE, True),
    "unix": (Layout.SINGLE, False),
    "sentinel": (Layout.SENTINEL, False),
    "sentinels": (Layout.SENTINEL, True),
    "cluster": (Layout.CLUSTER, False),
    "clusters": (Layout.CLUSTER, True),
}
"""Scheme → layout, and whether it uses TLS."""


@dataclass(frozen=True)
class Credentials:
    """An ACL user, or the default user if there is only a password."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TlsOptions:
    """Options of redis-py's TLS connection. By default the server is verified against the system's authorities."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = field(default=None, repr=False)
    cert_reqs: str = "required"
    check_hostname: bool = True


@dataclass(frozen=True)
class StoreUrl:
    """A parsed store address. Its `repr` and `str` contain no secret."""

    layout: Layout
    addresses: tuple[Address, ...] = ()
    """Addresses of the server, of the sentinels, or of some nodes of the cluster; empty for a socket."""
    socket_path: str | None = None
    master: str | None = None
    """The name of the primary in the sentinels' configuration."""
    db: int = 0
    credentials: Credentials = Credentials()
    sentinel_credentials: Credentials = Credentials()
    tls: TlsOptions | None = None

    @staticmethod
    def parse(text: str) -> "StoreUrl":
        """Raises SettingsError, which never repeats a password."""
        return _Parser(text).parse()

    def masked(self) -> str:
        """For printing: the password, if any, is three asterisks."""
        scheme = {Layout.SINGLE: "redis"}.get(self.layout, self.layout.value) + ("s" if self.tls else "")
        hosts = self.socket_path or ",".join(map(str, self.addresses))
        path = f"/{self.master}" if self.master else ""
        if self.socket_path:
            scheme, path = "unix", f"?db={self.db}" if self.db else ""
        elif self.db:
            path += f"/{self.db}"
        user = quote(self.credentials.username or "", safe="")
        credentials = f"{user}:***@" if self.credentials.password else ""
        return f"{scheme}://{credentials}{hosts}{path}"

    __str__ = masked


class _Parser:
    """Parses one address."""

    def __init__(self, text: str) -> None:
        found = _URL.fullmatch(text.strip())
        if not found or found["scheme"] not in _SCHEMES:
            _refuse("is not an address that Routebook supports")
        self._scheme: str = found["scheme"]
        self._layout, self._with_tls = _SCHEMES[self._scheme]
        self._hosts: str = found["hosts"]
        self._path = unquote(found["path"] or "")
        self._credentials: str = found["credentials"] or ""
        self._options = self._read_options(found["query"] or "")

    def parse(self) -> StoreUrl:
        over_socket = self._scheme == "unix"
        master, db = self._split_path()
        return StoreUrl(
            layout=self._layout,
            addresses=() if over_socket else self._read_addresses(),
            socket_path=self._read_socket_path() if over_socket else None,
            master=master,
            db=db,
            credentials=self._read_credentials(),
            sentinel_credentials=Credentials(
                self._options.get("sentinel_username"), self._options.get("sentinel_password")
            ),
            tls=self._read_tls() if self._with_tls else None,
        )

    def _read_options(self, query: str) -> Mapping[str, str]:
        allowed: set[str] = set()
        if self._with_tls:
            allowed |= TLS_OPTIONS
        if self._layout is Layout.SENTINEL:
            allowed |= {"sentinel_username", "sentinel_password"}
        if self._scheme == "unix":
            allowed.add("db")
        options = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(options.keys() - allowed):
            known = ", ".join(sorted(allowed)) or "none"
            _refuse(f"has the option {unknown[0]}, which {self._scheme}:// does not have (it has: {known})")
        return options

    def _read_addresses(self) -> tuple[Address, ...]:
        if not self._hosts:
            _refuse("names no host")
        several = self._layout is not Layout.SINGLE
        if not several and "," in self._hosts:
            _refuse("names several hosts, which is for sentinel:// and cluster://")
        default_port = SENTINEL_PORT if self._layout is Layout.SENTINEL else REDIS_PORT
        return tuple(_read_address(host, default_port) for host in self._hosts.split(","))

    def _read_socket_path(self) -> str:
        if self._hosts or not self._path.startswith("/"):
            _refuse("names no absolute socket path, as in unix:///run/redis.sock")
        return self._path

    def _split_path(self) -> tuple[str | None, int]:
        if self._scheme == "unix":
            return None, _read_db(self._options.get("db", ""))
        parts = self._path.strip("/").split("/") if self._path.strip("/") else []
        master = None
        if self._layout is Layout.SENTINEL:
            if not parts:
                _refuse("names no master, as in sentinel://host:26379/mymaster")
            master = parts.pop(0)
        if self._layout is Layout.CLUSTER and parts:
            _refuse("names a database, but a cluster has only database 0")
        if len(parts) > 1:
            _refuse("has more in its path than a database number")
        return master, _read_db(parts[0] if parts else "")

    def _read_credentials(self) -> Credentials:
        if not self._credentials:
            return Credentials()
        user, separator, password = self._credentials.partition(":")
        if not separator or not password:
            _refuse("has a user but no password (a password alone is written :password@)")
        return Credentials(unquote(user) or None, unquote(password))

    def _read_tls(self) -> TlsOptions:
        options = self._options
        cert_reqs = options.get("ssl_cert_reqs", "required")
        if cert_reqs not in ("required", "none"):
            _refuse("has ssl_cert_reqs other than required or none")
        check_hostname = options.get("ssl_check_hostname", "true").lower()
        if check_hostname not in ("true", "false"):
            _refuse("has ssl_check_hostname other than true or false")
        return TlsOptions(
            ca_certs=options.get("ssl_ca_certs"),
            certfile=options.get("ssl_certfile"),
            keyfile=options.get("ssl_keyfile"),
            password=options.get("ssl_password"),
            cert_reqs=cert_reqs,
            check_hostname=check_hostname == "true",
        )


def _read_address(text: str, default_port: int) -> Address:
    found = _HOST.fullmatch(text.strip())
    port = int(found["port"] or default_port) if found else 0
    if not found or not 1 <= port <= 65535:
        _refuse("has a host that is not host, host:port or [IPv6]:port, with a port from 1 to 65535")
    return Address(found["v6"] or found["name"], port)


def _read_db(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal() or int(text) > MAX_DB:
        _refuse(f"has a database that is not a number from 0 to {MAX_DB}")
    return int(text)


def _refuse(what: str) -> NoReturn:
    """The message does not contain the address, which may have a password in an unexpected place."""
    raise SettingsError(
        f"The store address {what}.",
        advice="Allowed: redis[s]://[user:password@]host[:port][/db], unix:///path, "
        "sentinel[s]://[user:password@]host[:port],host[:port]/master[/db], "
        "cluster[s]://[user:password@]host[:port],host[:port].",
    )
