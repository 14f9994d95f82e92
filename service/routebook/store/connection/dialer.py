"""Finds the primary, and opens connections (TCP, TLS or socket) to it that are authenticated and on the right database.

No other code depends on Sentinel or Cluster. All nodes are asked at once, and the majority decides: a sentinel that was
cut off together with an old primary still names that one, and a node that is down must not delay every search by its
timeout.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    RedisSSLContext,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from routebook.errors import NotPrimaryError, StoreError, StoreUnavailableError
from routebook.store.connection.link import StoreReplyError, Word, pack, translate_reply
from routebook.store.connection.url import Address, Credentials, Layout, StoreUrl, TlsOptions

CLIENT_NAME = "routebook"
UNREACHABLE_ADVICE = "Is it running, and is its address right? See ROUTEBOOK_REDIS_URL."


class Dialer:
    """Everything about the store's address except for where the primary is."""

    def __init__(self, url: StoreUrl) -> None:
        self._url = url
        self._tls = _tls_context(url.tls) if url.tls else None

    def reload_tls(self) -> None:
        """The next connection reads the certificates from their files again, so rotated ones need no restart."""
        if self._url.tls:
            self._tls = _tls_context(self._url.tls)

    def name(self, address: Address | None) -> str:
        return str(address) if address else str(self._url.socket_path)

    async def dial_primary(self, address: Address | None) -> AbstractConnection:
        """Connects to a server that reports to be a primary; otherwise raises StoreUnavailableError. Without an address
        it uses the socket.
        """
        connection = await self._connect(address, self._url.credentials, self._url.db)
        try:
            # The answer to PING shows that the data is loaded. If SETNAME is forbidden, the connection has no name.
            replies = await converse(connection, [("CLIENT", "SETNAME", CLIENT_NAME), ("ROLE",), ("PING",)])
            self._check_greeting(self.name(address), *replies[1:])
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def ask(self, address: Address, command: Sequence[Word], credentials: Credentials) -> Any:
        """Sends one command to a server that may not be the primary: a sentinel, or a node of the cluster."""
        connection = await self._connect(address, credentials, 0)
        try:
            (reply,) = await converse(connection, [command])
        finally:
            await connection.disconnect(nowait=True)
        if isinstance(reply, StoreError):
            raise reply
        return reply

    async def _connect(self, address: Address | None, credentials: Credentials, db: int) -> AbstractConnection:
        connection = self._new_connection(address, credentials, db)
        name = self.name(address)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except RedisError as error:
            refusal = translate_reply(error) if _is_reply(error) else None
            if isinstance(refusal, StoreUnavailableError):
                raise refusal from error
            reason = refusal or self._missing_file() or error
            raise StoreUnavailableError(
                f"The store at {name} cannot be reached: {reason}".rstrip(".") + ".",
                advice=UNREACHABLE_ADVICE,
            ) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _missing_file(self) -> str | None:
        """Which file is missing, which the library's error does not contain."""
        tls = self._url.tls
        files = (tls.ca_certs, tls.certfile, tls.keyfile) if tls else ()
        missing = [name for name in files if name and not Path(name).is_file()]
        return f"there is no file {missing[0]}" if missing else None

    def _new_connection(self, address: Address | None, credentials: Credentials, db: int) -> AbstractConnection:
        # No timeouts of redis-py, which cost a timer and a task per call: the caller has a deadline. No retries, since
        # a repeated command may be carried out twice. RESP2, which has no messages without a request.
        options: dict[str, Any] = {
            "db": db,
            "username": credentials.username,
            "password": credentials.password,
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "protocol": 2,
            "driver_info": None,
        }
        if address is None:
            return UnixDomainSocketConnection(path=self._url.socket_path or "", **options)
        options |= {"host": address.host, "port": address.port}
        if self._tls is None:
            return Connection(**options)
        connection = SSLConnection(**options)
        connection.ssl_context = self._tls
        return connection

    def _check_greeting(self, name: str, role: Any, pong: Any) -> None:
        for reply in (role, pong):
            # A user without permission for ROLE, or a proxy without that command, is accepted; the checks at the
            # start find out more.
            if isinstance(reply, StoreError) and not isinstance(reply, StoreReplyError):
                raise reply
        if isinstance(role, list) and role and role[0] != b"master":
            raise NotPrimaryError(
                f"The store at {name} is a {role[0].decode(errors='replace')}, not the primary.",
                advice="Name the primary, or use a sentinel:// or cluster:// address, which find it.",
            )


async def converse(connection: AbstractConnection, commands: Sequence[Sequence[Word]]) -> list[Any]:
    """Sends all commands and reads all replies, before the connection is shared. Error replies are returned."""
    replies: list[Any] = []
    try:
        await connection.send_packed_command([pack(command) for command in commands])
        for _ in commands:
            try:
                replies.append(await connection.read_response(disconnect_on_error=False))
            except RedisError as error:
                if not _is_reply(error):
                    raise
                replies.append(translate_reply(error))
    except RedisError as error:
        raise StoreUnavailableError(f"The store closed the connection: {error}.", advice=UNREACHABLE_ADVICE) from error
    return replies


def _is_reply(error: RedisError) -> bool:
    """redis-py derives some error replies from its ConnectionError; those carry the reply's code."""
    return isinstance(error, ResponseError) or bool(getattr(error, "status_code", None))


def _tls_context(options: TlsOptions) -> RedisSSLContext:
    return RedisSSLContext(
        ca_certs=options.ca_certs,
        certfile=options.certfile,
        keyfile=options.keyfile,
        password=options.password,
        cert_reqs=options.cert_reqs,
        check_hostname=options.check_hostname,
    )


ASK_SECONDS = 1.0
_ADVICE = {
    Layout.SENTINEL: "Name the sentinels (usually port 26379), not the servers, and the master as they call it.",
    Layout.CLUSTER: "Name nodes of a Cluster that are running; a single server is redis://host:port.",
}


class Resolver:
    """Lists the servers that may be the primary, the most likely one first. ROLE then shows whether a server is."""

    def __init__(self, url: StoreUrl, slot_key: str, dialer: Dialer) -> None:
        self._url = url
        self._slot = key_slot(slot_key.encode())
        self._dialer = dialer
        self._known_nodes: set[Address] = set(url.addresses)
        self._pointed_at: Address | None = None

    async def find(self) -> list[Address | None]:
        """None stands for the socket. Raises StoreUnavailableError if no node names a primary."""
        if self._url.layout is Layout.SINGLE:
            return [self._url.addresses[0] if self._url.addresses else None]
        pointed_at, self._pointed_at = self._pointed_at, None
        if pointed_at:
            return [pointed_at]
        votes = await self._ask_all()
        return [address for address, _ in votes.most_common()]

    async def find_promoted(self, current: Address) -> Address | None:
        """The primary that a majority of the nodes names, if it is not `current`. Fewer are not enough to leave a
        primary that answers: they may be cut off together with an old one.
        """
        nodes = len(self._nodes)
        votes = await self._ask_all()
        ((named, count),) = votes.most_common(1)
        return named if named != current and count > nodes // 2 else None

    @property
    def _nodes(self) -> Collection[Address]:
        return self._url.addresses if self._url.layout is Layout.SENTINEL else self._known_nodes

    async def _ask_all(self) -> Counter[Address]:
        """How many nodes name each address; not all of them if a majority has been found."""
        if self._url.layout is Layout.SENTINEL:
            return await self._vote(self._nodes, self._ask_sentinel)
        return await self._vote(self._nodes, self._ask_node)

    def point_at(self, redirection: str, asked: Address | None) -> None:
        """Uses a node's `MOVED <slot> <host>:<port>` for the next search. An empty host is the node that was asked."""
        host, _, port = redirection.rpartition(" ")[2].rpartition(":")
        if port.isdecimal() and asked:
            self._pointed_at = Address(host or asked.host, int(port))

    async def _ask_sentinel(self, sentinel: Address) -> Address | None:
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.master or "")
        reply = await self._dialer.ask(sentinel, command, self._url.sentinel_credentials)
        return Address(reply[0].decode(), int(reply[1])) if reply else None

    async def _ask_node(self, node: Address) -> Address | None:
        slots = await self._dialer.ask(node, ("CLUSTER", "SLOTS"), self._url.credentials)
        owner = None
        named = set(self._url.addresses)
        for first, last, *nodes in slots:
            addresses = [_announced(entry, node) for entry in nodes]
            named.update(addresses)
            if first <= self._slot <= last:
                owner = addresses[0]
        # Nodes that left the cluster are not asked again.
        self._known_nodes = named
        return owner

    async def _vote(
        self, nodes: Collection[Address], ask: Callable[[Address], Awaitable[Address | None]]
    ) -> Counter[Address]:
        votes: Counter[Address] = Counter()
        failures: list[str] = []
        tasks = [asyncio.ensure_future(ask(node)) for node in nodes]
        try:
            for answer in asyncio.as_completed(tasks, timeout=ASK_SECONDS):
                try:
                    named = await answer
                except StoreError as error:
                    failures.append(str(error))
                    continue
                if named is None:
                    failures.append(self._names_no_primary())
                    continue
                votes[named] += 1
                if votes[named] > len(tasks) // 2:
                    break
        except TimeoutError:
            failures.append(f"no answer within {ASK_SECONDS:g} s")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not votes:
            raise StoreUnavailableError(
                f"No node of {self._url} names a primary: {failures[0]}", advice=_ADVICE[self._url.layout]
            )
        return votes

    def _names_no_primary(self) -> str:
        if self._url.layout is Layout.SENTINEL:
            return f"the sentinels have no master {self._url.master!r}."
        return f"no node of the cluster serves slot {self._slot}."


def _announced(entry: list[Any], asked: Address) -> Address:
    """A node that does not know its own address omits it; then it has the address that was asked."""
    host = (entry[0] or b"").decode()
    return Address(host if host not in ("", "?") else asked.host, int(entry[1]))
