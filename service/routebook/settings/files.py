"""The file given with `-c`: TOML, or RocketMQ's own properties."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routebook.errors import SettingsError
from routebook.settings import catalogue
from routebook.settings.java_properties import parse_properties

_PROPERTIES_SUFFIXES = (".properties", ".conf")


@dataclass(frozen=True, slots=True)
class FileContent:
    known: dict[str, str] = field(default_factory=dict)
    """Our name -> text."""
    kept: dict[str, str] = field(default_factory=dict)
    """Properties that are not settings of ours: kept, shown, without effect."""


def read_file(path: Path) -> FileContent:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"The settings file {path} cannot be read: {error.strerror}.",
            advice="Name a TOML or a RocketMQ properties file with -c.",
        ) from error
    text = _decode(raw)
    table = None if path.suffix.lower() in _PROPERTIES_SUFFIXES else _toml(path, text)
    return _from_properties(path, text) if table is None else _from_toml(path, table)


def _decode(raw: bytes) -> str:
    """UTF-8; else Latin-1, which is how Java reads properties."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _toml(path: Path, text: str) -> dict[str, Any] | None:
    """None when the content is properties: not called .toml, and RocketMQ's keys or no TOML at all."""
    surely_toml = path.suffix.lower() == ".toml"
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if surely_toml:
            raise SettingsError(
                f"The settings file {path} is not TOML: {error}.",
                advice="Correct the line, or name it .properties.",
            ) from error
        return None
    if not surely_toml and any(key in catalogue.names_of_properties() for key in table):
        return None
    return table


def _from_toml(path: Path, table: dict[str, Any]) -> FileContent:
    known: dict[str, str] = {}
    for key, value in table.items():
        text = _toml_text(value)
        one = catalogue.find(key, f"{key} in {path}", text)
        if isinstance(value, dict):
            raise SettingsError(f"{key} in {path} is a table.", advice=f"Allowed: {one.allowed}.")
        known[key] = text
    return FileContent(known=known)


def _toml_text(value: Any) -> str:
    """One way in for all sources: text. So `true` is no port and 1.5 no number of workers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def _from_properties(path: Path, text: str) -> FileContent:
    try:
        found = parse_properties(text)
    except ValueError as error:
        raise SettingsError(f"The settings file {path} is broken: {error}.", advice="Correct it.") from error
    content = FileContent()
    for key, value in found.items():
        # Our own names may stand there too: a fleet that moves over keeps one file.
        name = catalogue.names_of_properties().get(key, key)
        one = catalogue.all_settings().get(name)
        if one is None:
            content.kept[key] = value
        else:
            content.known[name] = one.from_properties(value) if key != name else value
    return content
