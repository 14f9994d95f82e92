"""`routebook route|topics|brokers|clusters`: the route table."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import click

from routebook.cli.command import DURATION, command, complete
from routebook.cli.forms import Form, with_names, with_output
from routebook.cli.readable import (
    age_text,
    cell_width,
    count_and_names,
    duration_text,
    fit_columns,
    terminal_width,
    time_text,
)
from routebook.cli.service_client import Service, path_part, with_service
from routebook.model.broker import PERM_READ, PERM_WRITE


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


def permission_letters(perm: int) -> str:
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")


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
    """Whether its topics may be written."""
    topics, writable = group["topics"], group["writable_topics"]
    if not topics:
        return None
    return "yes" if writable == topics else "no" if not writable else f"{writable} of {topics}"


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
