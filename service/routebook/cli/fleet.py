"""`routebook route|topics|brokers|clusters|delete-topic|write-permission`: the route table."""

import click

from routebook.cli.output import print_table
from routebook.cli.service_client import Service, as_json, path_part, print_json, with_service
from routebook.model.broker import PERM_READ, PERM_WRITE
from routebook.runtime.exits import AnswerIsNoError


@click.command("route")
@click.argument("topic")
@as_json
@with_service
def route_command(service: Service, topic: str, json_: bool) -> None:
    """Show the route of a topic: its brokers, their addresses and queues."""
    route = service.get(f"/v1/routes/{path_part(topic)}")
    if json_:
        print_json(route)
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
                    _permission_letters(queues.get("perm", 0)),
                )
            )
    print_table(("cluster", "broker", "role", "address", "read", "write", "perm"), rows)


def _permission_letters(perm: int) -> str:
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")


@click.command("topics")
@click.option("--cluster", help="Only topics with queues on a broker of this cluster.")
@as_json
@with_service
def topics_command(service: Service, cluster: str | None, json_: bool) -> None:
    """List all topics, with their brokers and queues."""
    topics = list(service.pages("/v1/topics", "topics", cluster=cluster))
    if json_:
        print_json(topics)
        return
    rows = [
        (
            one["topic"],
            list(one["queues"]),
            sum(queues["read_queues"] for queues in one["queues"].values()),
            sum(queues["write_queues"] for queues in one["queues"].values()),
        )
        for one in topics
    ]
    print_table(("topic", "brokers", "read queues", "write queues"), rows)


@click.command("brokers")
@click.option("--cluster", help="Only brokers of this cluster.")
@as_json
@with_service
def brokers_command(service: Service, cluster: str | None, json_: bool) -> None:
    """List all brokers, one line for each instance of a group."""
    brokers = list(service.pages("/v1/brokers", "brokers", cluster=cluster))
    if json_:
        print_json(brokers)
        return
    rows = [
        (
            group["cluster"],
            group["name"],
            instance["id"],
            instance["address"],
            group["topics"],
            _seconds(instance.get("timeout_ms")),
            group["zone"],
        )
        for group in brokers
        for instance in group["members"]
    ]
    print_table(("cluster", "broker", "id", "address", "topics", "timeout s", "zone"), rows)


def _seconds(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:g}"


@click.command("clusters")
@as_json
@with_service
def clusters_command(service: Service, json_: bool) -> None:
    """List all clusters and their brokers."""
    clusters = list(service.pages("/v1/clusters", "clusters"))
    if json_:
        print_json(clusters)
        return
    print_table(("cluster", "brokers"), [(one["name"], one["brokers"]) for one in clusters])


@click.command("delete-topic")
@click.argument("topic")
@click.option("--cluster", help="Only from the brokers of this cluster.")
@as_json
@with_service
def delete_topic_command(service: Service, topic: str, cluster: str | None, json_: bool) -> None:
    """Delete a topic from the route table. It returns if a broker still registers it."""
    result = service.request("DELETE", f"/v1/topics/{path_part(topic)}", params={"cluster": cluster})
    if json_:
        print_json(result)
    if not result["count"]:
        raise AnswerIsNoError(f"No broker has a topic {topic!r}.", advice="`routebook topics` lists all topics.")
    if not json_:
        click.echo(f"Deleted {topic} from {result['count']} brokers (version {result['version']}).")


@click.command("write-permission")
@click.argument("broker")
@click.argument("permission", type=click.Choice(["on", "off"]))
@as_json
@with_service
def write_permission_command(service: Service, broker: str, permission: str, json_: bool) -> None:
    """Allow or forbid writing to all topics of a broker, for maintenance."""
    body = {"writable": permission == "on"}
    result = service.request("PUT", f"/v1/brokers/{path_part(broker)}/write-permission", body=body)
    if json_:
        print_json(result)
    if not result["count"]:
        raise AnswerIsNoError(
            f"No topic has queues on a broker {broker!r}.", advice="`routebook brokers` lists all brokers."
        )
    if not json_:
        click.echo(
            f"Writing to {broker} is {permission}: {result['count']} topics changed (version {result['version']})."
        )
