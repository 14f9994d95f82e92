"""The route table: `routebook route|topics|brokers|clusters`, and `routebook describe broker|topic|group NAME`, which
shows everything that is known about one of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import click

from routebook.cli.changes import QUIET_KINDS, line_of
from routebook.cli.command import DURATION, command, command_group, complete
from routebook.cli.forms import Form, with_names, with_output
from routebook.cli.output import (
    age_text,
    cell_width,
    count_and_names,
    duration_text,
    fit_columns,
    permission_letters,
    print_fields,
    print_table,
    printable,
    terminal_width,
    time_text,
)
from routebook.cli.service_client import Service, path_part, with_service
from routebook.errors import RoutebookError
from routebook.model.broker import PERM_READ, PERM_WRITE
from routebook.runtime.exits import AnswerIsNoError


@command("route")
@click.argument("topic", shell_complete=complete("topics"))
@with_output
@with_service
def route_command(service: Service, topic: str, form: Form) -> None:
    """Show the route of a topic: its brokers, their addresses and queues.

    \b
    routebook route orders
    routebook route %RETRY%group -o json
    """
    route = service.get(f"/v1/routes/{path_part(topic)}")
    if not form.is_table:
        form.print_data(route)
        return
    queues_by_broker = {one["brokerName"]: one for one in route.get("queueDatas", [])}
    rows = []
    for broker in route.get("brokerDatas", []):
        queues = queues_by_broker.get(broker["brokerName"], {})
        for broker_id, address in sorted(broker["brokerAddrs"].items(), key=lambda item: int(item[0])):
            rows.append(
                (
                    broker["cluster"],
                    broker["brokerName"],
                    "master" if int(broker_id) == 0 else f"slave {broker_id}",
                    address,
                    queues.get("readQueueNums"),
                    queues.get("writeQueueNums"),
                    permission_letters(queues.get("perm", 0)),
                )
            )
    form.print_table(("cluster", "broker", "role", "address", "read", "write", "perm"), rows)


@command("topics")
@click.option(
    "--cluster", help="Only topics with queues on a broker of this cluster.", shell_complete=complete("clusters")
)
@click.option("--broker", help="Only topics of this broker name.", shell_complete=complete("brokers"))
@with_names
@with_service
def topics_command(service: Service, cluster: str | None, broker: str | None, form: Form) -> None:
    """List all topics, with their brokers and queues.

    \b
    routebook topics --cluster DefaultCluster
    routebook topics --broker broker-a -o name
    """
    topics = list(service.pages("/v1/topics", "topics", cluster=cluster, broker=broker))
    if not form.is_table:
        form.print_data(topics, [one["topic"] for one in topics])
        return
    width = None if form.is_wide else terminal_width()
    longest = max((cell_width(one["topic"]) for one in topics), default=0)
    # What the other columns and the gaps between them take.
    room = None if width is None else max(width - longest - 22, 20)
    rows = [
        (
            one["topic"],
            sum(queues["read_queues"] for queues in one["queues"].values()),
            sum(queues["write_queues"] for queues in one["queues"].values()),
            permission_of({queues["perm"] for queues in one["queues"].values()}),
            count_and_names(list(one["queues"]), room),
        )
        for one in topics
    ]
    form.print_table(("topic", "read", "write", "perm", "brokers"), rows)


def permission_of(perms: Collection[int]) -> str:
    """`mixed` when the brokers of a topic differ."""
    letters = {permission_letters(perm) for perm in perms}
    return letters.pop() if len(letters) == 1 else "mixed"


_BROKER_COLUMNS: Final = (
    "cluster",
    "broker",
    "id",
    "role",
    "address",
    "health",
    "heartbeat",
    "up",
    "write",
    "topics",
    "data version",
    "worker",
)
_OPTIONAL_COLUMNS: Final = ("worker", "data version", "topics", "cluster", "up", "role")
"""Left out first on a narrow terminal."""
_WIDE_COLUMNS: Final = (*_BROKER_COLUMNS[:-2], "timeout", "zone", "up since", "data version", "source", "worker")


@command("brokers")
@click.option("--cluster", help="Only brokers of this cluster.", shell_complete=complete("clusters"))
@click.option("--silent-for", type=DURATION, help="Only brokers without a heartbeat for this time, such as 1m.")
@click.option("--unhealthy", is_flag=True, help="Only brokers whose health is not `ok`.")
@with_names
@with_service
def brokers_command(
    service: Service, *, cluster: str | None, silent_for: float | None, unhealthy: bool, form: Form
) -> None:
    """List all brokers, one line for each instance of a group.

    Health: `ok`; `late`, no heartbeat for half of the timeout; `silent`, for all of it; `disconnected`, its connection
    was lost; `held`, its removal is held; `unknown`, the store cannot be reached.

    \b
    routebook brokers --silent-for 1m
    routebook brokers --cluster DefaultCluster --wide
    """
    groups = []
    for group in service.pages("/v1/brokers", "brokers", cluster=cluster):
        members = [
            one
            for one in group["members"]
            if (silent_for is None or (one["heartbeat_age_ms"] or 0) >= silent_for * 1000)
            and not (unhealthy and one["health"] == "ok")
        ]
        if members:
            groups.append({**group, "members": members})
    if not form.is_table:
        form.print_data(groups, [group["name"] for group in groups])
        return
    columns = _WIDE_COLUMNS if form.is_wide else _BROKER_COLUMNS
    cells = [_cells(group, one, wide=form.is_wide) for group in groups for one in group["members"]]
    rows = [[cell[column] for column in columns] for cell in cells]
    width = None if form.is_wide else terminal_width()
    form.print_table(*fit_columns(columns, rows, _OPTIONAL_COLUMNS, width))


def _cells(group: Mapping[str, Any], one: Mapping[str, Any], *, wide: bool = False) -> dict[str, object]:
    """The cells of one instance, by column."""
    return {
        **one,
        "cluster": group["cluster"],
        "broker": group["name"],
        "topics": group["topics"],
        "zone": group["zone"],
        "heartbeat": age_text(one["heartbeat_age_ms"]),
        "up": uptime_text(one),
        "up since": time_text(one["up_since_ms"]),
        "write": write_text(group),
        "timeout": None if one["timeout_ms"] is None else duration_text(one["timeout_ms"]),
        "data version": version_text(one["data_version"], wide=wide),
    }


def uptime_text(instance: Mapping[str, Any]) -> str | None:
    """By the clock of the store, as that of this machine may differ."""
    if None in (instance["up_since_ms"], instance["heartbeat_age_ms"]):
        return None
    now_ms = instance["last_heartbeat_ms"] + instance["heartbeat_age_ms"]
    return duration_text(max(now_ms - instance["up_since_ms"], 0))


def write_text(group: Mapping[str, Any]) -> str | None:
    """Whether its topics may be written, apart from those for the broker's own use, which no client uses."""
    topics, writable = _open_topics(group), group["writable_topics"]
    if not topics:
        return None
    return "yes" if writable == topics else "no" if not writable else f"{writable} of {topics}"


def _open_topics(group: Mapping[str, Any]) -> int:
    """A worker of an older release reports no closed ones."""
    return int(group["topics"] - group.get("closed_topics", 0))


def version_text(version: Mapping[str, int] | None, *, wide: bool = True) -> str | None:
    """The counter alone rises with each change of the broker's topics."""
    if version is None:
        return None
    return (
        f"{version['state_version']}/{version['timestamp']}/{version['counter']}" if wide else str(version["counter"])
    )


@command("clusters")
@with_names
@with_service
def clusters_command(service: Service, form: Form) -> None:
    """List all clusters and their brokers.

    \b
    routebook clusters
    routebook clusters --wide
    """
    clusters = list(service.pages("/v1/clusters", "clusters"))
    if not form.is_table:
        form.print_data(clusters, [one["name"] for one in clusters])
        return
    width = None if form.is_wide else terminal_width()
    longest = max((cell_width(one["name"]) for one in clusters), default=0)
    room = None if width is None else max(width - longest - 24, 20)
    rows = [(one["name"], one["members"], one["topics"], count_and_names(one["brokers"], room)) for one in clusters]
    form.print_table(("cluster", "instances", "topics", "brokers"), rows)


# -- describe


_CHANGES: Final = 10
_READ_CHANGES: Final = 100


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
    topics = _open_topics(group)
    if topics and not group["writable_topics"]:
        yield f"None of its topics may be written. To allow it: `routebook write-permission {group['name']} on`."
    elif group["writable_topics"] < topics:
        yield f"{topics - group['writable_topics']} of its {topics} topics may not be written."
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
        ("asked by", "not recorded: workers answer lookups from memory and count them without names"),
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
        # A baseline repeats the whole table from time to time, and would hide the changes.
        page = service.get("/v1/changes", order="desc", limit=_READ_CHANGES, **filters)
        changes = [entry for entry in page["changes"] if entry["kind"] not in QUIET_KINDS][:_CHANGES]
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
