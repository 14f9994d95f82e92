"""What OpenSSL is told: one context out of bytes that were read before, so that a key and a certificate that belong
together stay so whatever happens to their files meanwhile.
"""

import contextlib
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from routebook.accepting.certificates import issue

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
