"""What each setting is called, how its text is read, what is allowed. Derived from `fields/` alone."""

import difflib
import re
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings.fields import About, Settings
from routebook.settings.masking import mask, mask_stray

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
        """The value that a text means. The error names the key, the value (masked) and what is allowed."""
        try:
            return self.adapter.validate_python(text.strip())
        except ValidationError:
            # `from None`: pydantic's own message repeats the input, which may be a secret.
            raise InvalidInputError(self.name, self.masked(text), self.allowed) from None

    def text(self, value: Any) -> str:
        """The canonical text: `parse(text(v)) == v`."""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def from_properties(self, text: str) -> str:
        """What a value of RocketMQ's key means in our unit. InvalidInputError where ours would be more lenient."""
        text = text.strip()
        if isinstance(self.default, bool) and text.lower() not in ("true", "false"):
            # Apache takes `yes` and `on` for false, we for true: better asked than guessed.
            raise InvalidInputError(self.name, text, self.allowed)
        # What is no number stays as it is: `parse` names it.
        factor = self.about.properties_factor
        return str(int(text) * factor) if factor != 1 and _WHOLE.fullmatch(text) else text

    def to_properties(self, value: Any) -> str:
        """In RocketMQ's unit, rounded up: it knows no part of a second."""
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
    about = next(item for item in field.metadata if isinstance(item, About))
    constraints = tuple(item for item in field.metadata if not isinstance(item, About))
    annotation: Any = field.annotation
    kind: Any = Annotated[(annotation, *constraints)] if constraints else annotation
    return Setting(name, about, field.default, _allowed(annotation, field.metadata, about), TypeAdapter(kind))


@cache
def all_settings() -> dict[str, Setting]:
    """In the order in which `fields/` tells them."""
    return {name: _setting(name, field) for name, field in Settings.model_fields.items()}


@cache
def names_of_properties() -> dict[str, str]:
    """RocketMQ's own key -> our name."""
    return {one.about.properties_name: name for name, one in all_settings().items() if one.about.properties_name}


@cache
def weaker_names_of_properties() -> dict[str, str]:
    """RocketMQ's keys that count only where no other key says the same -> our name."""
    return {key: name for name, one in all_settings().items() for key in one.about.weaker_properties}


@cache
def former_names() -> dict[str, str]:
    """What a setting was called in an earlier release -> its name."""
    return {one.about.former_name: name for name, one in all_settings().items() if one.about.former_name}


def find(key: str, shown: str | None = None, value: str | None = None) -> Setting:
    """The setting of that name. `shown` is how the user wrote it: a flag, a variable, a key of a file."""
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
        return f"It is called {_as_written(all_settings()[now], shown)} now: {all_settings()[now].about.why}"
    near = nearest(key)
    if near is None:
        return "Allowed are: " + ", ".join(all_settings()) + "."
    return f"Did you mean {_as_written(all_settings()[near], shown)}?"


def _as_written(one: Setting, shown: str) -> str:
    """A flag, a variable or a key, as the user wrote the other one."""
    if shown.startswith("--"):
        return one.flag
    return one.variable if shown.startswith(VARIABLE_PREFIX) else one.name


def nearest(key: str, cutoff: float = 0.7) -> str | None:
    """What was probably meant, RocketMQ's own names included. The higher `cutoff` (to 1), the surer."""
    aliases = names_of_properties()
    if key in aliases:
        return aliases[key]
    folded = {name.replace("_", ""): name for name in all_settings()}
    folded |= {alias.lower(): name for alias, name in aliases.items()}
    close = difflib.get_close_matches(key.lower().replace("_", "").replace("-", ""), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None
