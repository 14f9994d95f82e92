"""Settings that can change while running. The store keeps the changes; the replica passes them to `apply`."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings import catalogue
from routebook.settings.fields import Settings
from routebook.settings.loading import Loaded, Origin
from routebook.settings.masking import mask_unknown
from routebook.settings.rules import check_together

_log = logging.getLogger(__name__)

_STRONGER = (Origin.FLAG, Origin.VARIABLE)


class LiveSettings:
    """Flags and variables of this process override the store's values; files and defaults do not."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self.current = loaded.settings
        """Changed only by `apply`."""
        self._at_run_time: frozenset[str] = frozenset()
        self._refused: dict[str, str] = {}
        self._subscribers: list[Callable[[Settings], None]] = []

    @property
    def loaded(self) -> Loaded:
        return self._loaded

    def origin(self, name: str) -> Origin:
        return Origin.RUN_TIME if name in self._at_run_time else self._loaded.origins[name]

    def describe(self, masked: bool = True) -> list[tuple[str, str, str]]:
        """Key, value and origin of every setting."""
        rows = []
        for name, one in catalogue.all_settings().items():
            text = one.text(getattr(self.current, name))
            rows.append((name, one.masked(text) if masked else text, str(self.origin(name))))
        return rows

    def masked(self, key: str, text: str) -> str:
        """A value without its secrets, also for a key that this release does not know."""
        one = catalogue.all_settings().get(key)
        return one.masked(text) if one else mask_unknown(key, text)

    def subscribe(self, callback: Callable[[Settings], None]) -> Callable[[], None]:
        """Calls `callback` with the new settings after each change. Returns a function that unsubscribes."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def check(self, key: str, text: str) -> str:
        """Returns the canonical text of a change at run time; raises when the change is not allowed."""
        one = catalogue.find(key)
        if not one.about.at_run_time:
            changeable = ", ".join(name for name, one in catalogue.all_settings().items() if one.about.at_run_time)
            raise SettingsError(
                f"{key} cannot be changed at run time.",
                advice=f"Set {one.variable} and restart. These can be changed at run time: {changeable}.",
            )
        value = one.parse(text)
        check_together(self.current.model_copy(update={key: value}))
        return one.text(value)

    def text_without_run_time(self, key: str) -> str:
        """The value that is in force when the setting is not changed at run time. Empty for an unknown setting."""
        one = catalogue.all_settings().get(key)
        return one.text(getattr(self._loaded.settings, key)) if one else ""

    def apply(self, overrides: Mapping[str, str]) -> None:
        """Takes all run-time settings of the store. A missing one returns to its file or default value."""
        changes = {key: value for key, text in overrides.items() if (value := self._accepted(key, text)) is not None}
        self._refused = {key: text for key, text in self._refused.items() if overrides.get(key) == text}
        settings = self._loaded.settings.model_copy(update=changes)
        self._at_run_time = frozenset(changes)
        if settings == self.current:
            return
        self.current = settings
        for callback in tuple(self._subscribers):
            callback(settings)

    def _accepted(self, key: str, text: str) -> Any:
        """None when a stronger source exists, or when the setting is unknown or invalid (logged once)."""
        one = catalogue.all_settings().get(key)
        if one is None or not one.about.at_run_time:
            return self._refuse(key, text, "is not one of the settings of this release that change at run time")
        if self._loaded.origins[key] in _STRONGER:
            return None
        try:
            return one.parse(text)
        except InvalidInputError as error:
            return self._refuse(key, text, f"is not allowed; allowed: {error.allowed}")

    def _refuse(self, key: str, text: str, reason: str) -> None:
        if self._refused.get(key) != text:
            _log.warning("Run-time setting %s=%r in the store %s; it is ignored.", key, self.masked(key, text), reason)
            self._refused[key] = text
