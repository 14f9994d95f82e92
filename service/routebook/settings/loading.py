"""Reads every source once, and says of each value where it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings import catalogue
from routebook.settings.fields import Settings
from routebook.settings.files import FileContent, read_file
from routebook.settings.masking import mask_unknown
from routebook.settings.rules import check_together
from routebook.settings.variables import read_variables

Profile = Literal["up", "serve"]

# The two ways to run differ in nothing else: a first try is for this machine, a service for its network.
_PROFILE_DEFAULTS: dict[Profile, dict[str, Any]] = {
    "up": {"bind_address": "127.0.0.1"},
    "serve": {"bind_address": "0.0.0.0"},  # noqa: S104 - the contract's default of `serve`
}


class Origin(StrEnum):
    """In the order of precedence, the strongest first."""

    FLAG = "flag"
    VARIABLE = "variable"
    RUN_TIME = "run time"
    FILE = "file"
    DEFAULT = "default"
    EMBEDDED = "embedded"
    """In place of a default: the store that `up` started itself."""


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, Origin]
    kept_properties: Mapping[str, str] = field(default_factory=dict)
    """Keys of a properties file that mean nothing here; secrets masked."""
    warnings: tuple[str, ...] = ()


def default_of(one: catalogue.Setting, profile: Profile) -> Any:
    """What holds when nobody says anything: `up` is for one's own machine, `serve` for others."""
    return _PROFILE_DEFAULTS[profile].get(one.name, one.default)


def load(
    flags: Mapping[str, str | None] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    profile: Profile = "up",
) -> Loaded:
    """Flags by setting name (None: not given). SettingsError for what is unknown, out of range or at odds."""
    content = read_file(file) if file is not None else FileContent()
    sources = (
        (Origin.FILE, content.known),
        (Origin.VARIABLE, read_variables(environ or {})),
        (Origin.FLAG, _given(flags or {})),
    )
    values: dict[str, Any] = dict(_PROFILE_DEFAULTS[profile])
    origins = dict.fromkeys(catalogue.all_settings(), Origin.DEFAULT)
    for origin, texts in sources:
        for name, text in texts.items():
            values[name] = _parse(name, text, origin, file)
            origins[name] = origin
    settings = Settings(**values)
    check_together(settings)
    kept = {key: mask_unknown(key, value) for key, value in content.kept.items()}
    return Loaded(settings, origins, kept, _warnings(kept, file))


def _given(flags: Mapping[str, str | None]) -> dict[str, str]:
    given = {name: text for name, text in flags.items() if text is not None}
    for name, text in given.items():
        catalogue.find(name, "--" + name.replace("_", "-"), text)
    return given


def _parse(name: str, text: str, origin: Origin, file: Path | None) -> Any:
    one = catalogue.find(name)
    try:
        return one.parse(text)
    except InvalidInputError as error:
        where = {Origin.FLAG: one.flag, Origin.VARIABLE: one.variable, Origin.FILE: str(file)}[origin]
        raise SettingsError(f"{name} is {error.value!r} (from {where}).", advice=f"Allowed: {error.allowed}.") from None


def _warnings(kept: Mapping[str, str], file: Path | None) -> tuple[str, ...]:
    if not kept:
        return ()
    return (f"Keys of {file} that have no effect here, kept and shown: {', '.join(sorted(kept))}.",)
