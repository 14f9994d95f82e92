"""`routebook describe broker|topic|group NAME`: everything that is known about one of them, on one page."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from routebook.cli.changes import line_of
from routebook.cli.command import command_group, complete
from routebook.cli.fleet import permission_letters, uptime_text, version_text, write_text
from routebook.cli.forms import Form, with_output
from routebook.cli.output import print_fields, print_table, printable
from routebook.cli.readable import age_text, count_and_names, duration_text, terminal_width, time_text
from routebook.cli.service_client import Service, path_part, with_service
from routebook.errors import RoutebookError
from routebook.model.broker import PERM_READ, PERM_WRITE
from routebook.runtime.exits import AnswerIsNoError

_CHANGES: Final = 10


@command_group("describe")
def describe_command() -> None:
    """Everything known about a broker, a topic or a broker group: state, last ten changes, warnings.

    \b
    routebook describe broker broker-a
    routebook describe topic orders
    """


# -- brokers and groups


@describe_command.command("broker")
@click.argument("name", shell_complete=complete("brokers"))
@with_output
@with_service
def describe_broker(service: Service, name: str, form: Form) -> None:
    """Describe each broker of a group in full. NAME is a broker name, one broker of it (broker-a/0), or an address.

    \b
    routebook describe broker broker-a
    routebook describe broker 127.0.0.11:10911
    """
    group, broker_id = _find_broker(service, name)
    chosen = [one for one in group["members"] if broker_id is None or one["id"] == broker_id]
    found = _with_context(service, {**group, "members": chosen}, _warnings_of_group(group), broker=group["name"])
    if not form.is_table:
        form.print_data(found)
        return
    print_fields([("broker", group["name"]), *_group_fields(group)])
    for one in chosen:
        click.echo(printable(f"\n{one['role']} {group['name']}/{one['id']}"))
        print_fields(_instance_fields(one))
    _print_context(found)


@describe_command.command("group")
@click.argument("name", shell_complete=complete("brokers"))
@with_output
@with_service
def describe_group(service: Service, name: str, form: Form) -> None:
    """Describe a broker group: all brokers that share a broker name, and their topics.

    \b
    routebook describe group broker-a
    routebook describe group broker-a -o yaml
    """
    group = service.get(f"/v1/brokers/{path_part(name)}")
    topics = [one["topic"] for one in service.pages("/v1/topics", "topics", broker=name)]
    found = _with_context(service, {**group, "topic_names": topics}, _warnings_of_group(group), broker=name)
    if not form.is_table:
        form.print_data(found)
        return
    width = None if form.is_wide else terminal_width()
    print_fields(
        [
            ("group", name),
            *_group_fields(group),
            ("topic names", count_and_names(topics, None if width is None else width * 3)),
        ]
    )
    click.echo()
    print_table(
        ("id", "role", "address", "health", "heartbeat", "up"),
        [
            (one["id"], one["role"], one["address"], one["health"], age_text(one["heartbeat_age_ms"]), uptime_text(one))
            for one in group["members"]
        ],
    )
    _print_context(found)


def _find_broker(service: Service, name: str) -> tuple[dict[str, Any], int | None]:
    """The group, and the broker id if the name contains one or is an address."""
    group_name, _, number = name.rpartition("/")
    if group_name and number.isdecimal():
        group = service.get(f"/v1/brokers/{path_part(group_name)}")
        if any(one["id"] == int(number) for one in group["members"]):
            return group, int(number)
        raise AnswerIsNoError(
            f"Group {group_name} has no broker with the id {number}.",
            advice=f"It has {', '.join(str(one['id']) for one in group['members']) or 'none'}.",
        )
    try:
        return service.get(f"/v1/brokers/{path_part(name)}"), None
    except AnswerIsNoError:
        for group in service.pages("/v1/brokers", "brokers"):
            for one in group["members"]:
                if one["address"] == name:
                    return group, one["id"]
        raise


def _group_fields(group: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [
        ("clusters", group["clusters"]),
        ("zone", group["zone"]),
        ("acting master", "allowed" if group["acting_master"] else "not allowed"),
        ("topics", group["topics"]),
        ("write permission", write_text(group)),
    ]


def _instance_fields(one: Mapping[str, Any]) -> list[tuple[str, object]]:
    expires = one["expires_in_ms"]
    up = uptime_text(one)
    return [
        ("address", one["address"]),
        ("HA address", one["ha_address"]),
        ("health", one["health"]),
        ("last heartbeat", _age_and_time(one["heartbeat_age_ms"], one["last_heartbeat_ms"])),
        ("expires", None if expires is None else "due" if expires <= 0 else f"in {duration_text(expires)}"),
        ("timeout", None if one["timeout_ms"] is None else duration_text(one["timeout_ms"])),
        ("up since", f"{time_text(one['up_since_ms'])} ({up})" if up else None),
        ("data version", version_text(one["data_version"])),
        ("connection", f"{one['source'] or 'unknown'} to worker {one['worker']}" if one["worker"] else "none"),
        ("filter servers", one["filters"]),
        ("incarnation", one["incarnation"]),
    ]


def _age_and_time(age_ms: int | None, ms: int | None) -> str | None:
    return None if ms is None else f"{age_text(age_ms)} ({time_text(ms)})"


def _warnings_of_group(group: Mapping[str, Any]) -> Iterator[str]:
    yield from _warnings_of_brokers(group)
    if group["topics"] and not group["writable_topics"]:
        yield f"None of its topics may be written. To allow it: `routebook write-permission {group['name']} on`."
    elif group["writable_topics"] < group["topics"]:
        yield f"{group['topics'] - group['writable_topics']} of its {group['topics']} topics may not be written."
    versions = {version_text(one["data_version"]) for one in group["members"] if one["data_version"]}
    if len(versions) > 1:
        yield "Its brokers have different data versions: a slave may not have copied the topics yet."


def _warnings_of_brokers(group: Mapping[str, Any]) -> Iterator[str]:
    name = group["name"]
    if not any(one["role"] in ("master", "acting-master") for one in group["members"]):
        yield f"{name} has no master: producers cannot send to it."
    for one in group["members"]:
        broker = f"{name}/{one['id']} at {one['address']}"
        heartbeat = f"the last heartbeat was {age_text(one['heartbeat_age_ms']) or 'never recorded'}"
        match one["health"]:
            case "late" | "silent":
                yield f"{broker} is {one['health']}: {heartbeat}."
            case "held":
                yield f"{broker} is kept although due: removals are held (`routebook expiry status`); {heartbeat}."
            case "disconnected":
                yield f"{broker} lost its connection and is being checked; {heartbeat}."


# -- topics


@describe_command.command("topic")
@click.argument("name", shell_complete=complete("topics"))
@with_output
@with_service
def describe_topic(service: Service, name: str, form: Form) -> None:
    """Describe a topic: its queues and permissions on each broker group, and where they are.

    \b
    routebook describe topic orders
    routebook describe topic orders -o json
    """
    topic = service.get(f"/v1/topics/{path_part(name)}")
    groups = {broker: _group_or_none(service, broker) for broker in topic["queues"]}
    warnings = [*_warnings_of_topic(topic, groups)]
    route = service.get(f"/v1/routes/{path_part(name)}")
    found = _with_context(service, {**topic, "groups": groups, "route": route}, warnings, topic=name)
    if not form.is_table:
        form.print_data(found)
        return
    queues = topic["queues"].values()
    fields = [
        ("topic", name),
        ("clusters", sorted({cluster for group in groups.values() if group for cluster in group["clusters"]})),
        ("read queues", sum(one["read_queues"] for one in queues)),
        ("write queues", sum(one["write_queues"] for one in queues if one["perm"] & PERM_WRITE)),
        ("order", route.get("orderTopicConf")),
    ]
    print_fields(fields)
    click.echo()
    print_table(
        ("broker", "read", "write", "perm", "master", "instances", "health"),
        [
            (
                broker,
                one["read_queues"],
                one["write_queues"],
                permission_letters(one["perm"]),
                _master_of(groups[broker]),
                len(groups[broker]["members"]) if groups[broker] else 0,
                _worst_health(groups[broker]),
            )
            for broker, one in topic["queues"].items()
        ],
    )
    _print_context(found)


def _group_or_none(service: Service, broker: str) -> Any:
    """None: the group was removed meanwhile."""
    try:
        return service.get(f"/v1/brokers/{path_part(broker)}")
    except AnswerIsNoError:
        return None


def _master_of(group: Mapping[str, Any] | None) -> str | None:
    masters = [one["address"] for one in (group or {}).get("members", []) if one["role"] != "slave"]
    return masters[0] if masters else None


def _worst_health(group: Mapping[str, Any] | None) -> str:
    found = {one["health"] for one in (group or {}).get("members", [])}
    return next((health for health in ("silent", "held", "disconnected", "late", "unknown") if health in found), "ok")


def _warnings_of_topic(topic: Mapping[str, Any], groups: Mapping[str, Any]) -> Iterator[str]:
    queues = topic["queues"]
    writable = [broker for broker, one in queues.items() if one["perm"] & PERM_WRITE and one["write_queues"]]
    readable = [broker for broker, one in queues.items() if one["perm"] & PERM_READ and one["read_queues"]]
    if not any(_master_of(groups[broker]) for broker in writable):
        yield "No broker with a master has a queue of it that may be written: producers cannot send."
    if not readable:
        yield "No broker has a queue of it that may be read: consumers get nothing."
    for broker in sorted(queues.keys() - set(writable)):
        yield f"It may not be written on {broker}. To allow it: `routebook write-permission {broker} on`."
    for broker, group in groups.items():
        if group is None:
            yield f"Group {broker} has just been removed."
        else:
            yield from _warnings_of_brokers(group)


# -- warnings and changes, which all pages end with


def _with_context(
    service: Service, described: Mapping[str, Any], warnings: Iterable[str], **filters: str
) -> dict[str, Any]:
    try:
        page = service.get("/v1/changes", order="desc", limit=_CHANGES, **filters)
        changes = page["changes"]
    except RoutebookError as error:
        # The history is in the store, and the rest of the page is known without it.
        changes = []
        warnings = [*warnings, f"The last changes cannot be read. {error.message}"]
    return {**described, "warnings": list(warnings), "last_changes": changes[::-1]}


def _print_context(found: Mapping[str, Any]) -> None:
    click.echo("\nLast changes" if found["last_changes"] else "\nLast changes: none in the history")
    for entry in found["last_changes"]:
        click.echo(f"  {line_of(entry)}")
    click.echo("\nWarnings" if found["warnings"] else "\nWarnings: none")
    for warning in found["warnings"]:
        click.echo(printable(f"  {warning}"))
