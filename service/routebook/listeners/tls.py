"""TLS of this process: which connections may use it, the context for the next one, and the certificate files.

A connection keeps the context that it began with, so changed files affect only new connections. Files that cannot be
used are ignored, and the last good certificate stays in use. The rules for reading them again are RocketMQ's.

Key and certificate are read completely before OpenSSL gets them, so that a pair that fits together stays together,
whatever happens to the files meanwhile.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal

from routebook.settings import Settings

_log = logging.getLogger(__name__)

Mode = Literal["permissive", "enforcing", "disabled"]
NeedClientAuth = Literal["none", "optional", "require"]
VERIFY_MODES: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
POLL_SECONDS: Final = 0.5

TEST_CERTIFICATE_LIFETIME: Final = timedelta(days=3650)
BACKDATED: Final = timedelta(days=1)
"""For peers whose clock is slow."""
MISSING_PACKAGE: Final = (
    "tls_test_mode is true, and the package that makes its certificate is not installed. Install it with "
    "pip install 'routebook[tls]', or use certificate files (tls_test_mode false, tls_key_path, tls_cert_path)"
)

Stamp = tuple[int, int, int] | None
"""Time of the last change, size and inode of a file, since mounted secrets are replaced by renaming. None: no file."""


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    key: bytes
    certificate: bytes
    password: str = ""


@dataclass(frozen=True, slots=True)
class ClientRule:
    """Which client certificates are requested. None are when any would be accepted (`auth_client` off): Python's `ssl`
    cannot accept one without verification, and a certificate that is not verified proves nothing.
    """

    auth_client: bool = False
    need: NeedClientAuth = "none"

    @property
    def verify_mode(self) -> ssl.VerifyMode:
        return VERIFY_MODES[self.need] if self.auth_client else ssl.CERT_NONE


CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL"
"""For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has no others."""


def certificate_names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The common names and the alternative names of a certificate that was verified, as `ssl` describes it."""
    if not certificate:
        return ()
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return (*subject, *(value for _, value in certificate.get("subjectAltName", ())))


def make_test_pair() -> Pair:
    """A self-signed certificate for RocketMQ's test mode, in which peers do not verify it. Its key is never written to
    a disk.
    """
    from cryptography import x509  # noqa: PLC0415 optional, and takes 11 MB of memory
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    addresses = [x509.IPAddress(ip_address(address)) for address in ("127.0.0.1", "::1")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + TEST_CERTIFICATE_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(key_bytes, certificate.public_bytes(pem))


def server_context(pair: Pair, rule: ClientRule, trust: bytes | None) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError is one) or ValueError when the parts are broken or do not fit together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
        # Without a password function OpenSSL would ask for the password at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: pair.password)
    context.verify_mode = rule.verify_mode
    if rule.verify_mode != ssl.CERT_NONE:
        if trust is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            context.load_verify_locations(cadata=trust.decode("ascii"))
    return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """`ssl` reads key and certificate from files only. On Linux, this one is in memory; elsewhere it is a private file
    that is deleted at once.
    """
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
        """At the last look, whether they could be used or not, so that the same error is not logged twice a second."""
        self._used: dict[str, Stamp] = {}
        """Stamps of the files that the current context was made of."""
        self._loading = asyncio.Lock()
        self.loads = 0
        self.problem = ""
        """Why there is no context."""

    @property
    def takes_tls(self) -> bool:
        return self._options.mode != "disabled"

    @property
    def takes_plain(self) -> bool:
        return self._options.mode != "enforcing"

    async def context(self) -> ssl.SSLContext | None:
        """For the next connection. None if there is no certificate to use; `problem` says why.

        In test mode, the certificate is made for the first TLS connection, since most workers never get one.
        """
        if self._context is None and self._options.test_mode and not self.problem:
            async with self._loading:
                if self._context is None:
                    await asyncio.to_thread(self._attempt, {}, [], lambda: (make_test_pair(), None))
        return self._context

    async def open(self) -> None:
        """Never fails: without a certificate, plain connections can still be served."""
        if not self.takes_tls:
            return
        if self._rule.need != "none" and not self._rule.auth_client:
            _log.warning(
                "tls_need_client_auth is %s, but tls_auth_client is false, so any certificate would do: none is "
                "requested.",
                self._rule.need,
            )
        if not self._options.test_mode:
            await asyncio.to_thread(self._load_all, self._seen)
        elif find_spec("cryptography") is None:
            self.problem = MISSING_PACKAGE
            # No warning: test mode is the default, and most installations do not use TLS.
            _log.info("TLS connections are closed: %s.", self.problem)

    async def run(self) -> None:
        """Watches the files until it is cancelled."""
        if self._options.test_mode or not self.takes_tls:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            # In a thread, because a network file system may be slow.
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Uses what has changed since the last look. A changed trust file counts by itself; key and certificate count
        when both have changed.
        """
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

    def _load_all(self, now: dict[str, Stamp]) -> None:
        self._attempt(now, list(now) or ["no files"], lambda: (self._read_pair(), self._read_trust()))

    def _attempt(
        self, now: dict[str, Stamp], paths: list[str], read: Callable[[], tuple[Pair | None, bytes | None]]
    ) -> None:
        source = ", ".join(paths) or "a certificate made for this run"
        try:
            pair, trust = read()
            if pair is None:
                return
            context = server_context(pair, self._rule, trust)
        except (OSError, ValueError) as error:
            self.problem = f"{source} cannot be used: {error}"
            then = (
                "The last good certificate stays." if self._context else "TLS connections are closed until this works."
            )
            _log.error("TLS cannot use %s: %s. %s", source, error, then)
            return
        self._context, self._pair, self._trust = context, pair, trust
        self._used |= {path: now[path] for path in paths if path in now}
        self.loads += 1
        _log.info("TLS uses %s.", source)

    def _has_changed(self, now: dict[str, Stamp], path: str) -> bool:
        return path in now and now[path] != self._used.get(path)

    def _stamps(self) -> dict[str, Stamp]:
        options = self._options
        return {path: _stamp(path) for path in (options.key_path, options.cert_path, options.trust_path) if path}

    def _read_pair(self) -> Pair:
        options = self._options
        for name, path in (("tls_key_path", options.key_path), ("tls_cert_path", options.cert_path)):
            if not path:
                raise ValueError(f"tls_test_mode is false and {name} is empty")
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
