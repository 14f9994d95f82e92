"""Parses the store's address, which has the same form as in the service, and opens a client for it.

    redis[s]://[[user]:password@]host[:port][/db]
    unix://[[user]:password@]/path/of/socket[?db=0]
    sentinel[s]://[[user]:password@]host[:port],host[:port]/<master>[/db]
    cluster[s]://[[user]:password@]host[:port],host[:port]

Query options: with TLS `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_password`, `ssl_cert_reqs` and
`ssl_check_hostname`; with Sentinel `sentinel_username` and `sentinel_password`. No error message repeats any part of an
address, because it may contain a password.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, unquote

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel

from routebook_pipeline.errors import UnreachableError, WrongUsageError

Client = Redis | RedisCluster

CONNECT_TIMEOUT_S: Final = 5.0
REPLY_TIMEOUT_S: Final = 10.0
"""Long enough for a store that is busy, and short enough to report one that is frozen."""
LARGE_REPLY_TIMEOUT_S: Final = 30.0
"""The largest reply has about 16 MiB, and the network may be slow."""
REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379

_ADDRESS: Final = re.compile(
    r"(?P<scheme>redis|unix|sentinel|cluster)(?P<tls>s?)://"
    r"(?:(?P<credentials>[^/?]*)@)?(?P<hosts>[^/?@]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?"
)
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_TLS_OPTIONS: Final = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"}
)
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "unix": frozenset({"db"}),
    "sentinel": frozenset({"sentinel_username", "sentinel_password"}),
}


def open_client(address: str, reply_timeout_s: float = REPLY_TIMEOUT_S) -> Client:
    """Connects to a cluster now, to anything else at the first command; both may raise errors of redis-py.
    WrongUsageError for an invalid address.
    """
    match = _ADDRESS.fullmatch(address.strip())
    if match is None or (match["scheme"] == "unix" and match["tls"]):
        _refuse("has a form that Routebook does not know")
    options = dict(parse_qsl(match["query"] or "", keep_blank_values=True))
    allowed = _OPTIONS.get(match["scheme"], frozenset()) | (_TLS_OPTIONS if match["tls"] else frozenset())
    if unknown := sorted(options.keys() - allowed):
        _refuse(
            f"has the option {unknown[0]}, but {match['scheme']}{match['tls']}:// allows {sorted(allowed) or 'none'}"
        )
    connection = {**(_tls(options) if match["tls"] else {}), **_connection_options(reply_timeout_s)}
    client = _OPENERS[match["scheme"]](match, options, _credentials(match["credentials"] or ""), connection)
    # redis-py would turn each reply into tuples and dictionaries, which is not needed here and halves the speed.
    for parsing in _parsing_clients(client):
        parsing.set_response_callback("XRANGE", _unparsed)
    return client


def _parsing_clients(client: Client) -> list[Redis]:
    """The clients that parse replies: on a cluster, one for each node."""
    if not isinstance(client, RedisCluster):
        return [client]
    cluster: Any = client
    return [cluster.get_redis_connection(node) for node in cluster.get_nodes()]


def _unparsed(reply: Any, **_: Any) -> Any:
    return reply


def as_unparsed_entries(entries: list[Any]) -> list[Any]:
    """Brings entries into the form [id, [field, value, …]]. Those of a node that joined the cluster after
    `open_client` come parsed.
    """
    if not entries or isinstance(entries[0], list):
        return entries
    return [[name, [part for pair in fields.items() for part in pair]] for name, fields in entries]


def _connection_options(reply_timeout_s: float) -> dict[str, Any]:
    """RESP2, for the parser in C and plain replies. No retries: Spark and `ingest` repeat what may be repeated, and
    the ten retries of redis-py, with their pauses, turn a timeout of half a second into nine.
    """
    return {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": reply_timeout_s,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
    }


_Opener = Callable[[re.Match[str], dict[str, str], dict[str, Any], dict[str, Any]], Client]


def _single(match: re.Match[str], _: dict[str, str], credentials: dict[str, Any], connection: dict[str, Any]) -> Redis:
    hosts = _hosts(match["hosts"], REDIS_PORT)
    if len(hosts) > 1:
        _refuse("names several hosts, which only sentinel:// and cluster:// allow")
    ((host, port),) = hosts
    db = _db((match["path"] or "").strip("/"))
    return Redis(host=host, port=port, db=db, **credentials, **connection)


def _socket(
    match: re.Match[str], options: dict[str, str], credentials: dict[str, Any], connection: dict[str, Any]
) -> Redis:
    path = unquote(match["path"] or "")
    if match["hosts"] or not path.startswith("/"):
        _refuse("names no absolute socket path, as in unix:///run/redis.sock")
    return Redis(unix_socket_path=path, db=_db(options.get("db", "")), **credentials, **connection)


def _sentinel(
    match: re.Match[str], options: dict[str, str], credentials: dict[str, Any], connection: dict[str, Any]
) -> Redis:
    master, _, db = unquote(match["path"] or "").strip("/").partition("/")
    if not master:
        _refuse("names no master, as in sentinel://host:26379/mymaster")
    own = {name: options.get(f"sentinel_{name}") for name in ("username", "password")}
    sentinels = Sentinel(  # type: ignore[no-untyped-call]
        _hosts(match["hosts"], SENTINEL_PORT),
        sentinel_kwargs={**own, **connection},
        **credentials,
        **connection,
    )
    client: Redis = sentinels.master_for(master, db=_db(db))  # type: ignore[no-untyped-call]
    return client


def _cluster(
    match: re.Match[str], _: dict[str, str], credentials: dict[str, Any], connection: dict[str, Any]
) -> RedisCluster:
    if (match["path"] or "").strip("/"):
        _refuse("names a database, but a cluster has only database 0")
    hosts = _hosts(match["hosts"], REDIS_PORT)
    nodes = [ClusterNode(host, port) for host, port in hosts]  # type: ignore[no-untyped-call]
    return RedisCluster(startup_nodes=nodes, **credentials, **connection)


_OPENERS: Final[Mapping[str, _Opener]] = {
    "redis": _single,
    "unix": _socket,
    "sentinel": _sentinel,
    "cluster": _cluster,
}


def store_unreachable(error: Exception) -> UnreachableError:
    """The messages of redis-py name hosts and ports, never credentials."""
    return UnreachableError(
        f"RB_UNREACHABLE: the store cannot be reached: {str(error).rstrip('.')}. Check that it is running and that the "
        "configured address is right."
    )


def _hosts(text: str, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        port = int(match["port"] or default_port) if match else 0
        if not match or not 1 <= port <= 65535:
            _refuse("has a host that is not host, host:port or [IPv6]:port, with a port from 1 to 65535")
        hosts.append((match["v6"] or match["name"], port))
    return hosts


def _db(text: str) -> int:
    if text and not text.isdecimal():
        _refuse("has a database that is not a number")
    return int(text or 0)


def _credentials(text: str) -> dict[str, Any]:
    if not text:
        return {}
    user, _, password = text.partition(":")
    if not password:
        _refuse("has a user but no password (a password alone is written :password@)")
    return {"username": unquote(user) or None, "password": unquote(password)}


def _tls(options: dict[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {name: options[name] for name in _TLS_OPTIONS & options.keys()}
    if given.setdefault("ssl_cert_reqs", "required") not in ("required", "none"):
        _refuse("has ssl_cert_reqs other than required or none")
    check = given.get("ssl_check_hostname", "true").lower()
    if check not in ("true", "false"):
        _refuse("has ssl_check_hostname other than true or false")
    # The TLS library refuses to check the host name of a certificate that it does not verify.
    given["ssl_check_hostname"] = check == "true" and given["ssl_cert_reqs"] == "required"
    return {"ssl": True, **given}


def _refuse(what: str) -> NoReturn:
    raise WrongUsageError(
        f"The store's address {what}. Allowed: redis[s]://[user:password@]host[:port][/db], unix:///path, "
        "sentinel[s]://[user:password@]host[:port],host[:port]/master[/db], "
        "cluster[s]://[user:password@]host[:port],host[:port]."
    )
