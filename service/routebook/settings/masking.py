"""Which values are secret, and what is printed in their place. Only this module decides that."""

import re
from enum import StrEnum

MASK = "********"

_SECRET_WORDS = re.compile(r"passw|secret|token|credential|accesskey|access\.key", re.IGNORECASE)
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)(.*)$", re.DOTALL)
_QUERY_SECRET = re.compile(r"([?&][^=&]*(?:passw|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)


class Secret(StrEnum):
    WHOLE = "whole"
    URL = "url"


def mask(secret: Secret | None, text: str) -> str:
    if secret is Secret.WHOLE:
        return MASK if text else ""
    return mask_url(text) if secret is Secret.URL else text


def mask_url(url: str) -> str:
    """Masks the password but not the user. A password may contain `@` or `/`, so credentials end at the last `@`."""
    found = _SCHEME.match(url)
    if not found:
        # Not a URL: it may be the password itself.
        return MASK if url else ""
    scheme, rest = found.groups()
    before, question, query = rest.partition("?")
    credentials, at, host = before.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        before = f"{user}:{MASK}@{host}" if colon else f"{MASK}@{host}"
    return scheme + before + _QUERY_SECRET.sub(rf"\g<1>{MASK}", question + query)


def mask_unknown(key: str, value: str) -> str:
    """For unknown keys (kept properties, key-values): the name decides."""
    return MASK if value and _SECRET_WORDS.search(key) else value


def mask_stray(key: str, value: str) -> str:
    """For messages about an unknown setting: the value may be a secret under a mistyped name."""
    shown = mask_unknown(key, mask_url(value) if "://" in value else value)
    return shown if len(shown) <= 120 else shown[:117] + "..."
