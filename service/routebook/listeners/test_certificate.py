"""Makes a certificate where nobody gave one: X.509 over the curve P-256, in plain Python.

Python's `ssl` cannot, and the library that can would be the largest dependency of all for a certificate that by
definition nobody checks (docs/decisions/0025). What is done here is done once a start; OpenSSL does the handshakes.
"""

import hashlib
import secrets
from base64 import encodebytes
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

# FIPS 186-4, D.1.2.3
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
SCALAR_BYTES = 32
LIFETIME = timedelta(days=3650)
BACKDATED = timedelta(days=1)
"""For peers whose clock is behind."""

BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OID, UTF8, SEQUENCE, SET = 1, 2, 3, 4, 6, 12, 0x30, 0x31
UTC_TIME, GENERALIZED_TIME = 23, 24
EC_PUBLIC_KEY = bytes.fromhex("2a8648ce3d0201")
PRIME256V1 = bytes.fromhex("2a8648ce3d030107")
ECDSA_WITH_SHA256 = bytes.fromhex("2a8648ce3d040302")
COMMON_NAME = bytes.fromhex("550403")
SUBJECT_KEY_ID, KEY_USAGE, SUBJECT_ALT_NAME, BASIC_CONSTRAINTS, AUTHORITY_KEY_ID = (
    bytes([0x55, 0x1D, number]) for number in (14, 15, 17, 19, 35)
)
DIGITAL_SIGNATURE, SIGNS_CERTIFICATES = b"\x07\x80", b"\x02\x04"
"""Bits of a key's usage, after the number of unused ones."""

Point = tuple[int, int] | None


@dataclass(frozen=True, slots=True, repr=False)
class Issued:
    name: str
    secret: int
    certificate: bytes
    """PEM, like `key`."""

    @property
    def key(self) -> bytes:
        """PKCS#8."""
        inner = _der(SEQUENCE, _integer(1), _der(OCTET_STRING, self.secret.to_bytes(SCALAR_BYTES, "big")))
        return _pem("PRIVATE KEY", _der(SEQUENCE, _integer(0), _key_kind(), _der(OCTET_STRING, inner)))


def issue(name: str, alternatives: tuple[str, ...] = (), *, by: Issued | None = None, signs: bool = False) -> Issued:
    """A new key and its certificate; `by` nobody else, it is signed by itself. `signs`: it may issue others."""
    secret = secrets.randbelow(N - 1) + 1
    public = _encoded(_times(secret, G))
    signer = by or Issued(name, secret, b"")
    signer_public = public if by is None else _encoded(_times(by.secret, G))
    now = datetime.now(UTC)
    body = _der(
        SEQUENCE,
        _der(0xA0, _integer(2)),
        _integer(secrets.randbits(127) | 1),
        _signature_kind(),
        _name(signer.name),
        _der(SEQUENCE, _time(now - BACKDATED), _time(now + LIFETIME)),
        _name(name),
        _der(SEQUENCE, _key_kind(), _bits(public)),
        _der(0xA3, _der(SEQUENCE, *_extensions(alternatives, public, signer_public, signs=signs))),
    )
    certificate = _der(SEQUENCE, body, _signature_kind(), _bits(_signed(signer.secret, body)))
    return Issued(name, secret, _pem("CERTIFICATE", certificate))


def _extensions(alternatives: tuple[str, ...], public: bytes, signer_public: bytes, *, signs: bool) -> list[bytes]:
    found = [
        _extension(BASIC_CONSTRAINTS, _der(SEQUENCE, *([_der(BOOLEAN, b"\xff")] if signs else [])), critical=True),
        _extension(KEY_USAGE, _der(BIT_STRING, SIGNS_CERTIFICATES if signs else DIGITAL_SIGNATURE), critical=True),
        _extension(SUBJECT_KEY_ID, _der(OCTET_STRING, _key_id(public))),
        _extension(AUTHORITY_KEY_ID, _der(SEQUENCE, _der(0x80, _key_id(signer_public)))),
    ]
    if alternatives:
        found.append(_extension(SUBJECT_ALT_NAME, _der(SEQUENCE, *map(_alternative, alternatives))))
    return found


def _alternative(text: str) -> bytes:
    try:
        return _der(0x87, ip_address(text).packed)
    except ValueError:
        return _der(0x82, text.encode("ascii"))


def _extension(oid: bytes, value: bytes, *, critical: bool = False) -> bytes:
    return _der(SEQUENCE, _der(OID, oid), _der(BOOLEAN, b"\xff") if critical else b"", _der(OCTET_STRING, value))


def _key_id(public: bytes) -> bytes:
    return hashlib.sha256(public).digest()[:20]


def _name(text: str) -> bytes:
    return _der(SEQUENCE, _der(SET, _der(SEQUENCE, _der(OID, COMMON_NAME), _der(UTF8, text.encode()))))


def _time(moment: datetime) -> bytes:
    # RFC 5280, 4.1.2.5: two digits of the year until 2049.
    if moment.year < 2050:
        return _der(UTC_TIME, moment.strftime("%y%m%d%H%M%SZ").encode())
    return _der(GENERALIZED_TIME, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _key_kind() -> bytes:
    return _der(SEQUENCE, _der(OID, EC_PUBLIC_KEY), _der(OID, PRIME256V1))


def _signature_kind() -> bytes:
    return _der(SEQUENCE, _der(OID, ECDSA_WITH_SHA256))


def _integer(value: int) -> bytes:
    return _der(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(data: bytes) -> bytes:
    return _der(BIT_STRING, b"\0", data)


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def _pem(label: str, der: bytes) -> bytes:
    text = encodebytes(der).replace(b"\n", b"")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return b"\n".join([f"-----BEGIN {label}-----".encode(), *lines, f"-----END {label}-----".encode(), b""])


def _signed(secret: int, data: bytes) -> bytes:
    """ECDSA, FIPS 186-4, 6.4."""
    digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
    while True:
        nonce = secrets.randbelow(N - 1) + 1
        point = _times(nonce, G)
        r = point[0] % N if point else 0
        s = pow(nonce, -1, N) * (digest + r * secret) % N
        if r and s:
            return _der(SEQUENCE, _integer(r), _integer(s))


def _encoded(point: Point) -> bytes:
    if point is None:
        raise ValueError("The point at infinity is nobody's key.")
    return b"\x04" + b"".join(part.to_bytes(SCALAR_BYTES, "big") for part in point)


def _times(factor: int, point: Point) -> Point:
    total: Point = None
    while factor:
        if factor & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        factor >>= 1
    return total


def _sum(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % P == 0:
            return None
        slope = 3 * (one[0] ** 2 - 1) * pow(2 * one[1], -1, P) % P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, P) % P
    x = (slope**2 - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P
