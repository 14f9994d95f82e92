"""What OpenSSL is told: one context out of bytes that were read before, so that a key and a certificate that belong
together stay so whatever happens to their files meanwhile.

TLS of this process: who may speak it, the context for the next connection, and the files it comes from.

A connection keeps the context it began with, so a change of files touches nobody who is connected. What cannot be
used is never taken up: the last good certificate stays. The rules of when to read again are Apache's.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from routebook.listeners.test_certificate import issue
from routebook.settings import Settings

NeedClientAuth = Literal["none", "optional", "require"]
DEMANDS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    key: bytes
    certificate: bytes
    password: str = ""


@dataclass(frozen=True, slots=True)
class ClientRule:
    """Which certificates of clients are asked for. Where any would do (auth_client off) none is: `ssl` cannot take an
    unchecked one, and one that everybody can make for himself proves nothing.
    """

    auth_client: bool = False
    need: NeedClientAuth = "none"

    @property
    def demand(self) -> ssl.VerifyMode:
        return DEMANDS[self.need] if self.auth_client else ssl.CERT_NONE


def temporary_pair() -> Pair:
    """Signed by itself, for this run; its key is never written to a disk."""
    made = issue("localhost", ("localhost", "127.0.0.1", "::1"))
    return Pair(made.key, made.certificate)


def server_context(pair: Pair, rule: ClientRule, trust: bytes | None) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError is one) or ValueError when the parts are broken or do not fit together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
        # Without a password of its own OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: pair.password)
    context.verify_mode = rule.demand
    if rule.demand != ssl.CERT_NONE:
        if trust is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            context.load_verify_locations(cadata=trust.decode("ascii"))
    return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """`ssl` reads keys from files only. In memory where the system has such files."""
    if sys.platform == "linux":
        fd = os.memfd_create("routebook-tls", os.MFD_CLOEXEC)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{fd}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


_log = logging.getLogger(__name__)

Mode = Literal["permissive", "enforcing", "disabled"]
POLL_SECONDS = 0.5

Stamp = tuple[int, int, int] | None
"""Time of the change, size, and which file it is: mounted secrets are exchanged by renaming. None: not there."""


@dataclass(frozen=True, slots=True, repr=False)
class TlsOptions:
    """The settings of the same names."""

    mode: Mode = "permissive"
    test_mode: bool = True
    key_path: str = ""
    key_password: str = ""
    cert_path: str = ""
    trust_path: str = ""
    auth_client: bool = False
    need_client_auth: NeedClientAuth = "none"

    @classmethod
    def of(cls, settings: Settings) -> "TlsOptions":
        return cls(
            mode=settings.tls_mode,
            test_mode=settings.tls_test_mode,
            key_path=settings.tls_key_path,
            key_password=settings.tls_key_password,
            cert_path=settings.tls_cert_path,
            trust_path=settings.tls_trust_path,
            auth_client=settings.tls_auth_client,
            need_client_auth=settings.tls_need_client_auth,
        )


class ServerTls:
    def __init__(self, options: TlsOptions = TlsOptions()) -> None:
        self._options = options
        self._context: ssl.SSLContext | None = None
        self._rule = ClientRule()
        if not options.test_mode:
            self._rule = ClientRule(options.auth_client, options.need_client_auth)
        self._pair: Pair | None = None
        self._trust: bytes | None = None
        self._seen = self._stamps()
        """At the last look, whether that led to something or not: the same trouble is not told twice a second."""
        self._used: dict[str, Stamp] = {}
        """Of those files that the context is made of."""
        self.loads = 0

    @property
    def takes_tls(self) -> bool:
        return self._options.mode != "disabled"

    @property
    def takes_plain(self) -> bool:
        return self._options.mode != "enforcing"

    def context(self) -> ssl.SSLContext | None:
        """For the next connection. None: none could be made yet, and the log says why."""
        return self._context

    async def open(self) -> None:
        """Never fails: who has no certificate can still serve plain connections."""
        if not self.takes_tls:
            return
        if self._rule.need != "none" and not self._rule.auth_client:
            _log.warning(
                "tls_need_client_auth is %s, but with tls_auth_client off any certificate would do: none is asked for.",
                self._rule.need,
            )
        await asyncio.to_thread(self._load_first)

    async def run(self) -> None:
        """Looks after the files for as long as it runs."""
        if self._options.test_mode or not self.takes_tls:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            # A folder on a network may take its time.
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Takes up what has changed since the last look."""
        now = self._stamps()
        if now == self._seen:
            return
        self._seen = now
        options = self._options
        if self._pair is None:
            self._load_all(now)
            return
        if self._has_changed(now, options.trust_path):
            self._attempt(now, [options.trust_path], lambda: (self._pair, self._read_trust()))
        if self._has_changed(now, options.key_path) and self._has_changed(now, options.cert_path):
            self._attempt(now, [options.key_path, options.cert_path], lambda: (self._read_pair(), self._trust))

    def _load_first(self) -> None:
        if self._options.test_mode:
            self._attempt({}, [], lambda: (temporary_pair(), None))
        else:
            self._load_all(self._seen)

    def _load_all(self, now: dict[str, Stamp]) -> None:
        self._attempt(now, list(now) or ["no files"], lambda: (self._read_pair(), self._read_trust()))

    def _attempt(
        self, now: dict[str, Stamp], paths: list[str], read: Callable[[], tuple[Pair | None, bytes | None]]
    ) -> None:
        shown = ", ".join(paths) or "a certificate made for this run"
        try:
            pair, trust = read()
            if pair is None:
                return
            context = server_context(pair, self._rule, trust)
        except (OSError, ValueError) as error:
            then = "The last good certificate stays." if self._context else "TLS connections are closed until it can."
            _log.error("TLS cannot use %s: %s. %s", shown, error, then)
            return
        self._context, self._pair, self._trust = context, pair, trust
        self._used |= {path: now[path] for path in paths if path in now}
        self.loads += 1
        _log.info("TLS uses %s.", shown)

    def _has_changed(self, now: dict[str, Stamp], path: str) -> bool:
        return path in now and now[path] != self._used.get(path)

    def _stamps(self) -> dict[str, Stamp]:
        options = self._options
        return {path: _stamp(path) for path in (options.key_path, options.cert_path, options.trust_path) if path}

    def _read_pair(self) -> Pair:
        options = self._options
        for name, path in (("tls_key_path", options.key_path), ("tls_cert_path", options.cert_path)):
            if not path:
                raise ValueError(f"tls_test_mode is off and {name} is empty")
        return Pair(Path(options.key_path).read_bytes(), Path(options.cert_path).read_bytes(), options.key_password)

    def _read_trust(self) -> bytes | None:
        path = self._options.trust_path
        return Path(path).read_bytes() if path and self._rule.auth_client else None


def _stamp(path: str) -> Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
