"""RocketMQ's signature of a request, as its ACL hook (`AclClientRPCHook`) makes it; the same in 4.x, 5.x and Go.

The header field `AccessKey` names the signer. `Signature` is the Base64 form of an HMAC-SHA1 with the signer's secret
key. It covers the values of all other header fields, in the order of their names and without separators, and
then the body. It covers neither the request code nor the opaque number, a time or the names of the fields. So a
recorded request can be sent again (docs/security.md).

Java clients with a zone add the zone's fields after they have signed, while brokers add them before. So both forms are
accepted, except of a registration, whose zone is stored. All that a forged zone can do then is filter the answer to the
lookup that carries it.
"""

import hmac
from base64 import b64encode
from collections.abc import Generator, Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
ZONE_FIELDS: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
ALGORITHM: Final = "sha1"
"""RocketMQ's choice. SHA-1 is broken for certificates, where collisions matter, but not in an HMAC."""
STEP_BYTES: Final = 1024 * 1024


def signed_text(ext: Mapping[str, str], *, without: frozenset[str] = frozenset()) -> str:
    """What is signed of the header."""
    return "".join([value for name, value in sorted(ext.items()) if name != SIGNATURE and name not in without])


def sign(secret: str, content: bytes) -> str:
    return b64encode(hmac.digest(secret.encode(), content, ALGORITHM)).decode()


def check_signature_in_steps(
    secret: str, ext: Mapping[str, str], body: bytes, *, allows_added_zone: bool = True
) -> Generator[None, None, bool]:
    """Yields about once a millisecond, because a body may have megabytes."""
    sent = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    variants = [signed_text(ext)]
    if allows_added_zone and not ZONE_FIELDS.isdisjoint(ext):
        variants.append(signed_text(ext, without=ZONE_FIELDS))
    view = memoryview(body)
    for text in variants:
        mac = hmac.new(secret.encode(), text.encode("utf-8", "replace"), ALGORITHM)
        for at in range(0, len(body), STEP_BYTES):
            if at:
                yield
            mac.update(view[at : at + STEP_BYTES])
        if hmac.compare_digest(b64encode(mac.digest()), sent):
            return True
    return False
