"""The content of requests 319 and 318, by which RocketMQ's peers read and change settings.

Every peer that reaches the port may send them. So secrets are masked, and only nine properties can be changed, those
that Apache's name server reads on every request. The port decides whether changes are allowed at all
(`remoting_config_updates`).
"""

import re

from routebook.errors import BrokenPropertiesError, InvalidInputError, ProtectedPropertyError
from routebook.settings import catalogue
from routebook.settings.files import OWN_PREFIX, parse_properties
from routebook.settings.inert import shown_by_apache
from routebook.settings.live import LiveSettings

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
