"""What a change of the history did, as short texts for people: what was changed, its value before and after.

Used for the audit log and by `routebook changes`. The values come from the history's entry alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

MAX_TOPICS_NAMED: Final = 3
"""A registration may have thousands of topics: the text has their number and the first few."""
MAX_NAMES: Final = 5
_COMMON: Final = frozenset(
    {"v", "kind", "actor", "source", "worker", "port", "verb", "cause", "entry", "ms", "version", "before"}
)


class ChangeText(NamedTuple):
    what: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        if not self.before and not self.after:
            return self.what
        return f"{self.what}: {self.before} -> {self.after}" if self.before else f"{self.what}: {self.after}"


def describe_change(fields: Mapping[str, Any]) -> ChangeText:
    """An entry with missing or strange fields (of another version) is shown with all that it has."""
    try:
        describe = _BY_KIND.get(fields["kind"], _other)
        return describe(fields)
    except (KeyError, TypeError, AttributeError, ValueError):
        return _other(fields)


def _seat(fields: Mapping[str, Any]) -> str:
    return f"{fields['cluster']}/{fields['broker']}/{fields['id']}"


def _registration(fields: Mapping[str, Any]) -> ChangeText:
    was = fields.get("before", {})
    former = {name: value for name, value in was.items() if name != "queues"}
    before = [f"{name} {_value(value)}" for name, value in former.items()]
    after = [f"{name} {_value(fields[name])}" for name in former if name in fields]
    if fields["kind"] == "broker-registered" and "addr" not in former:
        after.insert(0, f"addr {fields['addr']}")
    if items := was.get("queues"):
        before.append(_queues(items))
    if items := fields.get("queues"):
        after.append(_queues(items))
    return ChangeText(_seat(fields), ", ".join(before), ", ".join(after) or "other values of the registration")


def _removal(fields: Mapping[str, Any]) -> ChangeText:
    after = "none; the group and its topics are removed" if fields.get("group_removed") else "none"
    return ChangeText(_seat(fields), f"addr {fields['addr']}", after)


def _group(fields: Mapping[str, Any]) -> ChangeText:
    if fields.get("group_removed"):
        return ChangeText(f"group {fields['broker']}", after="removed")
    return ChangeText(f"group {fields['broker']}", after=f"zone {_value(fields['zone'])}, acting {fields['acting']}")


def _single_topics(fields: Mapping[str, Any]) -> ChangeText:
    what = f"{fields['cluster']}/{fields['broker']}"
    before = fields.get("before")
    return ChangeText(what, "" if before is None else _queues(before), _queues(fields["queues"]))


def _permission(fields: Mapping[str, Any]) -> ChangeText:
    before = fields.get("before")
    after = f"perm {fields['perm']}" if fields["rule"] == "set" else "without write"
    was = "perm " + ", ".join(map(str, before)) if before else ""
    return ChangeText(f"{fields['touched']} topics of {fields['broker']}", was, after)


def _key_value(fields: Mapping[str, Any]) -> ChangeText:
    """Without the values, which may be secrets."""
    before = ""
    if "before_sha1" in fields:
        before = f"value with SHA-1 {fields['before_sha1'][:12]}" if fields["before_sha1"] else "none"
    after = f"value with SHA-256 {fields['sha256'][:12]}" if "sha256" in fields else "none"
    return ChangeText(f"key {fields['namespace']}/{fields['key']}", before, after)


def _setting(fields: Mapping[str, Any]) -> ChangeText:
    before = _value(fields["before"], none="default") if "before" in fields else ""
    after = "file or default" if fields["value"] is None else str(fields["value"]) or "empty"
    return ChangeText(f"setting {fields['key']}", before, after)


def _refusal(fields: Mapping[str, Any]) -> ChangeText:
    times = f" ({fields['count']} times)" if fields["count"] > 1 else ""
    return ChangeText(f"{fields['verb']} {fields['object']}".strip(), after=f"{fields['reason']}{times}")


def _identity(fields: Mapping[str, Any]) -> ChangeText:
    after = f"role {fields['role']}" if "role" in fields else "none"
    return ChangeText(f"identity {fields['name']}", after=after)


def _held_removals(fields: Mapping[str, Any]) -> ChangeText:
    brokers = fields["brokers"]
    state = "held" if fields["kind"] == "expiry-held" else "released"
    return ChangeText("removals", after=f"{state}, of {len(brokers)} brokers: {_names(brokers)}")


def _pause(fields: Mapping[str, Any]) -> ChangeText:
    seconds = (fields["to_ms"] - fields["from_ms"]) / 1000
    return ChangeText("expiry", after=f"paused for {seconds:.0f} s, in which no worker could receive heartbeats")


def _baseline_begin(_fields: Mapping[str, Any]) -> ChangeText:
    return ChangeText("baseline", after="begins")


def _baseline_end(fields: Mapping[str, Any]) -> ChangeText:
    return ChangeText("baseline", after=f"complete, {fields['entries']} entries since version {fields['begin']}")


def _baseline_seat(fields: Mapping[str, Any]) -> ChangeText:
    return ChangeText(_seat(fields), after=f"addr {fields['addr']}")


def _other(fields: Mapping[str, Any]) -> ChangeText:
    return ChangeText(", ".join(f"{name} {_value(value)}" for name, value in fields.items() if name not in _COMMON))


def _queues(items: Sequence[Mapping[str, Any]]) -> str:
    """For example `2 topics: orders [perm 6, 8 read, 8 write], bills none`."""
    if not items:
        return "none"
    shown = ", ".join(map(_item, items[:MAX_TOPICS_NAMED]))
    more = f" and {len(items) - MAX_TOPICS_NAMED} more" if len(items) > MAX_TOPICS_NAMED else ""
    return f"{len(items)} topic{'s' if len(items) > 1 else ''}: {shown}{more}"


def _item(item: Mapping[str, Any]) -> str:
    if "x" in item:
        return f"{item['t']} none"
    flags = f", flags {item['f']}" if item["f"] else ""
    return f"{item['t']} [perm {item['p']}, {item['r']} read, {item['w']} write{flags}]"


def _value(value: object, *, none: str = "none") -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_value, value)) + ")"
    return none if value is None or value == "" else str(value)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (", ".join(map(str, names[:MAX_NAMES])) or "none") + more


_BY_KIND: Final = {
    "broker-registered": _registration,
    "broker-changed": _registration,
    "broker-removed": _removal,
    "group-changed": _group,
    "queues-changed": _single_topics,
    "write-permission": _permission,
    "kv-put": _key_value,
    "kv-deleted": _key_value,
    "settings-changed": _setting,
    "identity-changed": _identity,
    "expiry-held": _held_removals,
    "expiry-released": _held_removals,
    "expiry-paused": _pause,
    "baseline-begin": _baseline_begin,
    "baseline-seat": _baseline_seat,
    "baseline-queues": _single_topics,
    "baseline-end": _baseline_end,
    "refused": _refusal,
    "failed": _refusal,
}
