"""`routebook certs`: a certificate authority for tests, and certificates for the service and for clients."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from routebook.cli.command import command
from routebook.cli.output import print_table
from routebook.errors import SettingsError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
BACKDATED: Final = timedelta(hours=1)
"""For peers whose clock is slow."""
MAX_COMMON_NAME: Final = 64
MAX_DAYS: Final = 3650


@command("certs")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the files; it is created.")
@click.option("--name", "names", multiple=True, help="DNS name or address of the service; repeat it for each one.")
@click.option("--client", "clients", multiple=True, help="Name in a client's certificate; repeat it for each client.")
@click.option("--days", type=click.IntRange(1, MAX_DAYS), default=365, show_default=True, help="Until they expire.")
@click.option("--force", is_flag=True, help="Replace certificates that exist. The authority stays.")
def certs_command(out: Path, names: tuple[str, ...], clients: tuple[str, ...], days: int, force: bool) -> None:
    """Make a test authority, and certificates for the service and its clients.

    The authority (ca.pem, ca.key) is made once and used again by later runs on the same folder: for further clients,
    and with --force to renew. A running service loads the new files by itself. This is for tests and small
    installations: ca.key makes certificates that your peers accept, so keep it secret.

    \b
    routebook certs --out tls
    routebook certs --out tls --client ops --force
    """
    if find_spec("cryptography") is None:
        raise SettingsError(
            "The package that makes certificates is not installed.", advice="Get it with: pip install 'routebook[tls]'"
        )
    wanted = [_server(names), *(_client(name) for name in clients or ("client",))]
    files = [out / f"{request.file}.{kind}" for request in wanted for kind in ("pem", "key")]
    existing = [str(path) for path in files if path.exists()]
    if existing and not force:
        raise SettingsError(f"{', '.join(existing)} exist already.", advice="--force replaces them.")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _Authority.in_folder(out, days)
    for request in wanted:
        _write_pair(out / request.file, *authority.issue(request, days))
    print_table(
        ("file", "what it is"),
        [
            (out / "ca.pem", "the authority: trust file of the service and of its clients"),
            (out / "ca.key", "key of the authority: keep it secret"),
            *((out / f"{one.file}.{kind}", text) for one in wanted for kind, text in one.described),
        ],
    )


@dataclass(frozen=True)
class _Request:
    file: str
    common_name: str
    names: tuple[str, ...]
    is_server: bool

    @property
    def described(self) -> tuple[tuple[str, str], tuple[str, str]]:
        kind = "service" if self.is_server else f"client {self.common_name}"
        certificate = f"certificate of the {kind}"
        if self.is_server:
            certificate += f", for {', '.join(self.names)}"
        return ("pem", certificate), ("key", f"key of the {kind}")


def _server(names: Sequence[str]) -> _Request:
    every = tuple(dict.fromkeys((*map(_checked, names), *LOCAL_NAMES)))
    return _Request("server", every[0], every, is_server=True)


def _client(name: str) -> _Request:
    file = _checked(name)
    if file in ("ca", "server") or file.startswith("."):
        raise SettingsError(f"--client is {name!r}.", advice="Choose another name: it also names the files.")
    return _Request(file, name, (), is_server=False)


def _checked(name: str) -> str:
    if not (0 < len(name) <= MAX_COMMON_NAME) or not name.isascii() or set(name) & set("/\\ \t\r\n\0,"):
        raise SettingsError(
            f"{name!r} cannot be the name in a certificate.",
            advice=f"1 to {MAX_COMMON_NAME} ASCII characters without blanks, commas and slashes are allowed.",
        )
    return name


@dataclass(frozen=True)
class _Authority:
    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"

    @classmethod
    def in_folder(cls, folder: Path, days: int) -> "_Authority":
        """The one of an earlier run, or a new one."""
        pem, key = folder / "ca.pem", folder / "ca.key"
        if pem.exists() and key.exists():
            return cls._read(pem, key)
        if pem.exists() or key.exists():
            raise SettingsError(
                f"{folder} has only one of ca.pem and ca.key.", advice="Complete the pair, or name another folder."
            )
        made = cls._make(max(days, MAX_DAYS))
        _write_pair(folder / "ca", made.certificate, made.key)
        return made

    @classmethod
    def _read(cls, pem: Path, key_file: Path) -> "_Authority":
        from cryptography import x509  # noqa: PLC0415 optional
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        try:
            certificate = x509.load_pem_x509_certificate(pem.read_bytes())
            key = load_pem_private_key(key_file.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise SettingsError(
                f"The authority in {pem.parent} cannot be read: {error}.", advice="Name another folder with --out."
            ) from error
        if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise SettingsError(
                f"{pem} and {key_file} do not belong together.", advice="Name another folder with --out."
            )
        return cls(certificate, key)

    @classmethod
    def _make(cls, days: int) -> "_Authority":
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Routebook test authority")])
        builder = _builder(name, name, key, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(_signed(builder.add_extension(_key_usage(is_authority=True), critical=True), key), key)

    def issue(self, request: _Request, days: int) -> "tuple[x509.Certificate, EllipticCurvePrivateKey]":
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, request.common_name)])
        builder = _builder(subject, self.certificate.subject, key, self.key, days)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if request.is_server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if request.names:
            names = x509.SubjectAlternativeName(list(_alternative_names(request.names)))
            builder = builder.add_extension(names, critical=False)
        return _signed(builder, self.key), key


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    issuer_key: "EllipticCurvePrivateKey",
    days: int,
) -> "x509.CertificateBuilder":
    from cryptography import x509  # noqa: PLC0415

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _signed(builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> "x509.Certificate":
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    return builder.sign(key, hashes.SHA256())


def _key_usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(names: Sequence[str]) -> "Iterator[x509.GeneralName]":
    from cryptography import x509  # noqa: PLC0415

    for name in names:
        try:
            yield x509.IPAddress(ip_address(name))
        except ValueError:
            yield x509.DNSName(name)


def _write_pair(path: Path, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey") -> None:
    """The key first: a service that watches the files takes both when they fit together."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    pem = serialization.Encoding.PEM
    key_bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _replace(path.with_name(f"{path.name}.key"), key_bytes, 0o600)
    _replace(path.with_name(f"{path.name}.pem"), certificate.public_bytes(pem), 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """In one step, and never readable by others before its mode is set."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)
