"""Opens connections (TCP, TLS or socket) that are authenticated, on the right database, and to the primary."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    RedisSSLContext,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import RedisError, ResponseError

from routebook.errors import NotPrimaryError, StoreError, StoreUnavailableError
from routebook.store.connection.link import Word, pack
from routebook.store.connection.replies import StoreReplyError, translate_reply
from routebook.store.connection.url import Address, Credentials, StoreUrl, TlsOptions

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
