"""Settings that can change while running. The store keeps the changes; the replica passes them to `apply`.

RocketMQ's peers read and change settings with requests 319 and 318; `properties_text` and `plan_config_update` are
their content. Every peer that reaches the port may send them. So secrets are masked, and only nine properties can be
changed, those that Apache's name server reads on every request. The port decides whether changes are allowed at all
(`remoting_config_updates`).
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from routebook.errors import BrokenPropertiesError, InvalidInputError, ProtectedPropertyError, SettingsError
from routebook.settings import catalogue
from routebook.settings.fields import Settings
from routebook.settings.files import OWN_PREFIX, parse_properties, shown_by_apache
from routebook.settings.kinds import mask_unknown
from routebook.settings.loading import Loaded, Origin, check_together

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

    def source_above_run_time(self, name: str) -> str | None:
        """The flag or variable of this process because of which a change at run time has no effect here."""
        one = catalogue.find(name)
        return {Origin.FLAG: f"flag {one.flag}", Origin.VARIABLE: f"variable {one.variable}"}.get(self.origin(name))

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


CHANGEABLE = (
    "enableAllTopicList",
    "enableTopicList",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
    "notifyMinBrokerIdChanged",
    "needWaitForService",
    "waitSecondsForService",
    "deleteTopicWithBrokerRegistration",
)
ALWAYS_PROTECTED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

_JAVA_INT = re.compile(r"[+-]?0*[0-9]{1,10}")


def properties_text(live: LiveSettings) -> str:
    """The answer to 319: Apache's properties, the file's other keys and ours, sorted by key, without escapes."""
    shown = shown_by_apache(live.loaded.file) | dict(live.loaded.kept_properties)
    for name, one in catalogue.all_settings().items():
        value = getattr(live.current, name)
        if one.about.properties_name:
            shown[one.about.properties_name] = one.masked(one.to_properties(value))
        else:
            shown[OWN_PREFIX + name] = one.masked(one.text(value))
    return "".join(f"{key}={shown[key]}\n" for key in sorted(shown))


def plan_config_update(text: str, live: LiveSettings) -> dict[str, str]:
    """The changes requested by 318: our name -> canonical text. Other keys and values of the wrong type are ignored.

    BrokenPropertiesError for text that Java could not parse; ProtectedPropertyError when any key is on the black list.
    """
    try:
        requested = parse_properties(text)
    except ValueError as error:
        raise BrokenPropertiesError(f"The properties are broken: {error}.", advice="Correct the line.") from error
    if found := requested.keys() & _protected(live):
        raise ProtectedPropertyError(tuple(sorted(found)))
    names = catalogue.names_of_properties()
    plan = {names[key]: _canonical(names[key], requested[key]) for key in CHANGEABLE if key in requested}
    return {name: text for name, text in plan.items() if text is not None}


def _protected(live: LiveSettings) -> frozenset[str]:
    entries = live.current.config_black_list.split(";")
    return ALWAYS_PROTECTED | {entry.strip() for entry in entries if entry.strip()}


def _canonical(name: str, text: str) -> str | None:
    """None for a value to be ignored."""
    one = catalogue.find(name)
    if isinstance(one.default, bool):
        # Like `Boolean.parseBoolean`: "true " with a trailing blank is false.
        return one.text(text.lower() == "true")
    if not _JAVA_INT.fullmatch(text):
        return None
    try:
        return one.text(one.parse(str(int(text))))
    except InvalidInputError:
        return None
