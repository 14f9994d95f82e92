"""What settings are made of: the `setting` entry, the types of values that need more than a range, and which values are
secret and what is printed in their place. Only this module decides that.
"""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo

from routebook.errors import InvalidInputError
from routebook.model.names import check_address, check_namespace

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


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

STORE_SCHEMES = (
    "redis://",
    "rediss://",
    "unix://",
    "sentinel://",
    "sentinels://",
    "cluster://",
    "clusters://",
)
_ABOUT = "about"
_HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class About:
    """What a type cannot say about a setting."""

    why: str
    """What it does and why the default is what it is."""
    at_run_time: bool
    """May be changed while running; the change is kept in the store and reaches all workers."""
    properties_name: str
    """The key of RocketMQ's own namesrv.conf that means the same."""
    weaker_properties: tuple[str, ...]
    """Other RocketMQ keys, used when the first one is missing."""
    properties_factor: int
    """How many of our units are one of RocketMQ's, where the two differ."""
    former_names: tuple[str, ...]
    """Names in earlier releases. They are refused with an error that gives the present name."""
    allowed: str
    """What is allowed, where the type's own range does not say it."""
    secret: Secret | None


def setting(
    default: Any,
    *,
    why: str,
    ge: int | None = None,
    le: int | None = None,
    at_run_time: bool = False,
    properties_name: str = "",
    weaker_properties: tuple[str, ...] = (),
    properties_factor: int = 1,
    former_names: tuple[str, ...] = (),
    allowed: str = "",
    secret: Secret | None = None,
) -> Any:
    """One entry of `Settings`. The fields are explained in `About`."""
    about = About(
        why, at_run_time, properties_name, weaker_properties, properties_factor, former_names, allowed, secret
    )
    extra: dict[str, Any] = {_ABOUT: about}
    return Field(default, ge=ge, le=le, repr=secret is None, json_schema_extra=extra)


def about_of(field: FieldInfo) -> About:
    extra = field.json_schema_extra
    about: object = extra.get(_ABOUT) if isinstance(extra, dict) else None
    if not isinstance(about, About):
        raise TypeError("a setting is declared with `setting(...)`")
    return about


def split_list(text: str) -> tuple[str, ...]:
    """Lists are written with commas or, as RocketMQ does, with semicolons."""
    return tuple(part.strip() for part in text.replace(";", ",").split(",") if part.strip())


def _check_namespace(text: str) -> str:
    try:
        return check_namespace(text)
    except InvalidInputError as error:
        raise ValueError(error.allowed) from error


def _check_addresses(text: str) -> str:
    parts = split_list(text)
    for part in parts:
        try:
            check_address("advertised_addresses", part)
        except InvalidInputError as error:
            raise ValueError(error.allowed) from error
    return ";".join(parts)


def _check_networks(text: str) -> str:
    return ",".join(str(ipaddress.ip_network(part, strict=False)) for part in split_list(text))


def _check_host(text: str) -> str:
    if not text or any(letter.isspace() or letter in "/[]" for letter in text):
        raise ValueError("not a host")
    return text


def _check_host_names(text: str) -> str:
    names = [name.lower().removesuffix(".") for name in split_list(text)]
    if not all(_HOST_NAME.fullmatch(name) for name in names):
        raise ValueError("not host names")
    return ",".join(names)


def _check_token(text: str) -> str:
    if not all("!" <= letter <= "~" for letter in text):
        raise ValueError("not printable")
    return text


def _check_store_url(text: str) -> str:
    if text and not text.startswith(STORE_SCHEMES):
        raise ValueError("unknown scheme")
    return text


Host = Annotated[str, AfterValidator(_check_host)]
Addresses = Annotated[str, AfterValidator(_check_addresses)]
Networks = Annotated[str, AfterValidator(_check_networks)]
HostNames = Annotated[str, AfterValidator(_check_host_names)]
Token = Annotated[str, AfterValidator(_check_token)]
StoreUrl = Annotated[str, AfterValidator(_check_store_url)]
NamespaceName = Annotated[str, AfterValidator(_check_namespace)]
