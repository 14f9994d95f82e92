"""Certificates of a test's own, as files, and clients that trust them."""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from routebook.listeners.test_certificate import Issued, issue


@dataclass
class Authority:
    folder: Path
    issuer: Issued = field(default_factory=lambda: issue("test authority", signs=True))

    @property
    def trust(self) -> Path:
        return replace_file(self.folder / "trust.pem", self.issuer.certificate)

    def issue(self, name: str) -> Issued:
        return issue(name, ("localhost", "127.0.0.1"), by=self.issuer)

    def client(self, certificate: Issued | None = None, **limits: ssl.TLSVersion) -> ssl.SSLContext:
        """Trusts this authority, and shows a certificate if given one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.issuer.certificate.decode())
        for name, value in limits.items():
            setattr(context, name, value)
        if certificate is not None:
            file = self.folder / f"{certificate.name}.client.pem"
            file.write_bytes(certificate.key + certificate.certificate)
            context.load_cert_chain(file)
        return context


def replace_file(path: Path, content: bytes) -> Path:
    """In one step and as another file, as mounted secrets change."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)
    return path


def trusting() -> ssl.SSLContext:
    """Any certificate, as Java clients do in test mode."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
