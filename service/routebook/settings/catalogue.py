"""Each setting's flag, variable, parser and allowed values, all derived from `fields.py`."""

import difflib
import re
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings.fields import Settings
from routebook.settings.kinds import About, about_of, mask, mask_stray

VARIABLE_PREFIX = "ROUTEBOOK_"
_WHOLE = re.compile("[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    about: About
    default: Any
    allowed: str
    adapter: TypeAdapter[Any]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.upper()

    def parse(self, text: str) -> Any:
        """Parses the text of a value. The error names the key, the value (masked) and what is allowed."""
        try:
            return self.adapter.validate_python(text.strip())
        except ValidationError:
            # `from None`: pydantic's own message repeats the input, which may be a secret.
            raise InvalidInputError(self.name, self.masked(text), self.allowed) from None

    def text(self, value: Any) -> str:
        """The canonical text: `parse(text(v)) == v`."""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def from_properties(self, text: str) -> str:
        """Converts a value of RocketMQ's key to our unit. InvalidInputError where our parser would be more lenient."""
        text = text.strip()
        if isinstance(self.default, bool) and text.lower() not in ("true", "false"):
            # Apache reads `yes` and `on` as false, we as true: refuse them rather than guess.
            raise InvalidInputError(self.name, text, self.allowed)
        # A text that is not a number is returned unchanged; `parse` refuses it.
        factor = self.about.properties_factor
        return str(int(text) * factor) if factor != 1 and _WHOLE.fullmatch(text) else text

    def to_properties(self, value: Any) -> str:
        """In RocketMQ's unit, rounded up to whole seconds."""
        factor = self.about.properties_factor
        return self.text(value if factor == 1 else -(-value // factor))

    def masked(self, text: str) -> str:
        return mask(self.about.secret, text)


def _allowed(annotation: Any, metadata: list[Any], about: About) -> str:
    if about.allowed:
        return about.allowed
    if get_origin(annotation) is Literal:
        return ", ".join(get_args(annotation))
    if annotation is bool:
        return "true or false"
    low = [str(item.ge) for item in metadata if isinstance(item, Ge)]
    high = [str(item.le) for item in metadata if isinstance(item, Le)]
    return f"a whole number from {low[0]} to {high[0]}" if low and high else "a text"


def _setting(name: str, field: FieldInfo) -> Setting:
    about = about_of(field)
    constraints = tuple(field.metadata)
    annotation: Any = field.annotation
    kind: Any = Annotated[(annotation, *constraints)] if constraints else annotation
    return Setting(name, about, field.default, _allowed(annotation, field.metadata, about), TypeAdapter(kind))


@cache
def all_settings() -> dict[str, Setting]:
    """In the order of `fields.py`."""
    # Pydantic lists the fields of a base class (`limits.py`) first.
    own_first = sorted(Settings.model_fields.items(), key=lambda item: item[0] not in Settings.__annotations__)
    return {name: _setting(name, field) for name, field in own_first}


@cache
def names_of_properties() -> dict[str, str]:
    """RocketMQ's own key -> our name."""
    return {one.about.properties_name: name for name, one in all_settings().items() if one.about.properties_name}


@cache
def weaker_names_of_properties() -> dict[str, str]:
    """RocketMQ's keys that apply only when the main key is missing -> our name."""
    return {key: name for name, one in all_settings().items() for key in one.about.weaker_properties}


@cache
def former_names() -> dict[str, str]:
    """Name of a setting in an earlier release -> its present name."""
    return {former: name for name, one in all_settings().items() for former in one.about.former_names}


def find(key: str, shown: str | None = None, value: str | None = None) -> Setting:
    """The setting of that name. `shown` is the name as the user wrote it: a flag, a variable or a key of a file."""
    found = all_settings().get(key)
    if found is None:
        raise unknown(key, shown or key, value)
    return found


def refused(error: InvalidInputError, where: str) -> SettingsError:
    """`where` is the flag, the variable, or the key and the file."""
    return SettingsError(f"{error.field} is {error.value!r} (from {where}).", advice=f"Allowed: {error.allowed}.")


def unknown(key: str, shown: str, value: str | None) -> SettingsError:
    written = shown if value is None else f"{shown} (value {mask_stray(key, value)!r})"
    return SettingsError(f"{written} is not a setting.", advice=_advice(key, shown))


def _advice(key: str, shown: str) -> str:
    now = former_names().get(key)
    if now is not None:
        return f"It was renamed to {_as_written(all_settings()[now], shown)}: {all_settings()[now].about.why}"
    near = nearest(key)
    if near is None:
        return "Allowed are: " + ", ".join(all_settings()) + "."
    return f"Did you mean {_as_written(all_settings()[near], shown)}?"


def _as_written(one: Setting, shown: str) -> str:
    """Spelled as a flag, a variable or a key, like the name that the user wrote."""
    if shown.startswith("--"):
        return one.flag
    return one.variable if shown.startswith(VARIABLE_PREFIX) else one.name


def nearest(key: str, cutoff: float = 0.7) -> str | None:
    """The most similar name, RocketMQ's own names included. `cutoff` up to 1: higher demands more similarity."""
    aliases = names_of_properties()
    if key in aliases:
        return aliases[key]
    folded = {name.replace("_", ""): name for name in all_settings()}
    folded |= {alias.lower(): name for alias, name in aliases.items()}
    close = difflib.get_close_matches(key.lower().replace("_", "").replace("-", ""), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None
