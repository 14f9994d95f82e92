"""Certificate authorities for tests, their certificates as files, and clients that trust them."""

import os
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Issued:
    name: str
    private_key: ec.EllipticCurvePrivateKey
    x509: x509.Certificate

    @property
    def key(self) -> bytes:
        return self.private_key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    @property
    def certificate(self) -> bytes:
        return self.x509.public_bytes(PEM)


def issue(name: str, *, issuer: Issued | None = None) -> Issued:
    """A certificate for a server or client on this machine. Without an issuer it is an authority, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer_key = issuer.private_key if issuer else key
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.x509.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if issuer is not None:
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issued(name, key, builder.sign(issuer_key, hashes.SHA256()))


@dataclass
class Authority:
    folder: Path
    issuer: Issued = field(default_factory=lambda: issue("test authority"))

    @property
    def trust(self) -> Path:
        return replace_file(self.folder / "trust.pem", self.issuer.certificate)

    def issue(self, name: str) -> Issued:
        return issue(name, issuer=self.issuer)

    def client(self, certificate: Issued | None = None, **limits: ssl.TLSVersion) -> ssl.SSLContext:
        """Trusts this authority, and shows a certificate if it is given one."""
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
    """Accepts any certificate, as Java clients do in test mode."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
