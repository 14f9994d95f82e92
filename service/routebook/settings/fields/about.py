"""What the parts of the settings are made of: the reason beside each field, and the kinds of values."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from routebook.errors import InvalidInputError
from routebook.model.names import check_address, check_namespace
from routebook.settings.masking import Secret

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


@dataclass(frozen=True, slots=True)
class About:
    """What a type cannot say about a setting."""

    why: str
    """What it does and why the default is what it is."""
    properties_name: str = ""
    """The key of RocketMQ's own namesrv.conf that means the same."""
    weaker_properties: tuple[str, ...] = ()
    """Other keys of RocketMQ's that only give this one its default."""
    properties_factor: int = 1
    """How many of our unit make one of RocketMQ's, where the two differ."""
    former_name: str = ""
    """What it was called in an earlier release: whoever still says so is told."""
    at_run_time: bool = False
    """May be changed while running; the change lives in the store and reaches all workers."""
    allowed: str = ""
    """What is allowed, where the type's own range does not say it."""
    secret: Secret | None = None


def check_namespace_text(text: str) -> str:
    try:
        return check_namespace(text)
    except InvalidInputError as error:
        raise ValueError(error.allowed) from error


def split_list(text: str) -> tuple[str, ...]:
    """Lists are written with commas or, as RocketMQ does, with semicolons."""
    return tuple(part.strip() for part in text.replace(";", ",").split(",") if part.strip())


def check_addresses_text(text: str) -> str:
    parts = split_list(text)
    for part in parts:
        try:
            check_address("advertised_addresses", part)
        except InvalidInputError as error:
            raise ValueError(error.allowed) from error
    return ";".join(parts)


def check_networks_text(text: str) -> str:
    return ",".join(str(ipaddress.ip_network(part, strict=False)) for part in split_list(text))


def check_host_text(text: str) -> str:
    if not text or any(letter.isspace() or letter in "/[]" for letter in text):
        raise ValueError("not a host")
    return text


def check_token_text(text: str) -> str:
    if not all("!" <= letter <= "~" for letter in text):
        raise ValueError("not printable")
    return text


def check_store_url_text(text: str) -> str:
    if text and not text.startswith(STORE_SCHEMES):
        raise ValueError("unknown scheme")
    return text


Port = Annotated[int, Field(ge=0, le=65535)]
Interval = Annotated[int, Field(ge=10, le=3_600_000)]
Duration = Annotated[int, Field(ge=0, le=86_400_000)]
Host = Annotated[str, AfterValidator(check_host_text)]

HOST_ALLOWED = "an IP address or a host name of this machine"
FREE_TEXT = "a text"


class Part(BaseModel):
    """A subject's share of `Settings`. Immutable: a change at run time makes a new whole (`live.py`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
