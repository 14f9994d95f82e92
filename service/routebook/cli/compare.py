"""`routebook compare ADDRESS [OTHER]`"""

import asyncio
import ssl
from collections.abc import Iterable

import click

from routebook.cli.command import command
from routebook.cli.output import ProgressLine, print_table
from routebook.cli.service_client import Service, as_json, print_json, with_service
from routebook.compare.collecting import CollectOptions, ServerState
from routebook.compare.differences import Comparison, Difference, compare_servers, text_of
from routebook.errors import PeerUnavailableError
from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.model.names import check_address
from routebook.remoting_client import NameServer
from routebook.runtime import exits


@command("compare")
@click.argument("address")
@click.argument("other", required=False)
@click.option(
    "--settle",
    default=2.0,
    type=click.FloatRange(0, 600),
    show_default=True,
    metavar="SECONDS",
    help="Wait this long, then compare what differed a second time; only what differs both times is reported.",
)
@click.option("--kv", "namespaces", multiple=True, metavar="NAMESPACE", help="Compare these key-values as well.")
@click.option("--settings", is_flag=True, help="Also compare the settings that affect brokers and clients.")
@click.option("--tls", is_flag=True, help="Encrypt both connections; certificates are not verified.")
@as_json
@with_service
def compare_command(
    service: Service,
    *,
    address: str,
    other: str | None,
    settle: float,
    namespaces: tuple[str, ...],
    settings: bool,
    tls: bool,
    json_: bool,
) -> int:
    """Compare two name servers: ADDRESS and OTHER, or ADDRESS and this service.

    Each can be any server that speaks RocketMQ's remoting protocol, including Apache's. The comparison covers brokers,
    clusters, the route of every topic, and ordered topics.

    \b
    routebook compare 10.0.0.9:9876
    routebook compare 10.0.0.9:9876 10.0.0.10:9876 --settings
    """
    check_address("ADDRESS", address)
    second = check_address("OTHER", other) if other else remoting_address_of(service)
    options = CollectOptions(tuple(dict.fromkeys((ORDER_TOPIC_NAMESPACE, *namespaces))), settings)
    with ProgressLine() as line:
        comparison = asyncio.run(
            _compare(
                address, second, options, settle=settle, timeout_ms=int(service.timeout_s * 1000), tls=tls, line=line
            )
        )
    if json_:
        print_json(_document(comparison, address, second))
    else:
        _print(comparison, address, second)
    return exits.DONE if comparison.equal else exits.ANSWER_IS_NO


def remoting_address_of(service: Service) -> str:
    """The remoting address of this service: the host of its URL, with the port that the answering worker reports."""
    status = service.get("/v1/status")
    about: dict[str, object] = next(
        (worker["about"] for worker in status["workers"] if worker["worker"] == status["worker"]), {}
    )
    host = service.http.base_url.host
    port = about.get("remoting_port")
    if port:
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with service.connection_errors():
        addresses = service.http.get("/rocketmq/nsaddr").text
    return check_address("remoting address of the service", addresses.split(";")[0])


def unverified_tls() -> ssl.SSLContext:
    """Encryption without verification, as in RocketMQ's own clients: the certificates of its tools name no host."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _compare(
    address: str, other: str, options: CollectOptions, *, settle: float, timeout_ms: int, tls: bool, line: ProgressLine
) -> Comparison:
    context = unverified_tls() if tls else None
    connections = [NameServer.connect(name, timeout_ms=timeout_ms, tls=context) for name in (address, other)]
    servers = await asyncio.gather(*connections, return_exceptions=True)
    try:
        failures = [server for server in servers if isinstance(server, BaseException)]
        if failures:
            raise _combined(failures)
        here, there = (server for server in servers if isinstance(server, NameServer))
        return await compare_servers(here, there, options, recheck_after_s=settle, progress=line.show_routes)
    finally:
        for server in servers:
            if isinstance(server, NameServer):
                await server.close()


def _combined(failures: list[BaseException]) -> BaseException:
    """Names both servers when neither can be reached."""
    unavailable = [error for error in failures if isinstance(error, PeerUnavailableError)]
    if len(unavailable) < 2:
        return failures[0]
    return exits.ServiceUnreachableError(" ".join(str(error) for error in unavailable))


def _print(comparison: Comparison, address: str, other: str) -> None:
    rows = [
        (
            found.kind,
            found.name,
            found.field or found.verdict.replace("here", address).replace("there", other),
            *_cells(found),
        )
        for found in comparison.differences
    ]
    if rows:
        print_table(("kind", "name", "what", address, other), rows)
    click.echo(_summary(comparison, address, other))
    for state, server in ((comparison.here, address), (comparison.there, other)):
        for request, reason in state.declined.items():
            click.echo(f"Not compared: {server} declined the {request} ({reason}).", err=True)


def _cells(difference: Difference) -> tuple[str, str]:
    here, there = (None if value is None else text_of(value) for value in (difference.here, difference.there))
    return here or "-", there or "-"


def _summary(comparison: Comparison, address: str, other: str) -> str:
    transient = f" {comparison.transient} more differed only the first time." if comparison.transient else ""
    scope = f"{_count(comparison.here)} at {address}, {_count(comparison.there)} at {other}"
    if comparison.equal:
        return f"Equal: {scope}.{transient}"
    counts = _verdicts(comparison.differences)
    only = f"{counts['only here']} only at {address}, {counts['only there']} only at {other}"
    return f"Different: {only}, {counts['differs']} differ; {scope}.{transient}"


def _verdicts(differences: Iterable[Difference]) -> dict[str, int]:
    """Counts objects: one that differs in three fields counts once."""
    verdicts = {found.key: found.verdict for found in differences}
    return {verdict: list(verdicts.values()).count(verdict) for verdict in ("only here", "only there", "differs")}


def _count(state: ServerState) -> str:
    topics = sum(route is not None for route in state.routes.values())
    return f"{len(state.clusters)} clusters, {len(state.groups)} broker groups, {topics} topics"


def _document(comparison: Comparison, address: str, other: str) -> dict[str, object]:
    return {
        "here": address,
        "there": other,
        "equal": comparison.equal,
        "settled": comparison.transient,
        "counts": _verdicts(comparison.differences),
        "differences": [
            {
                "kind": found.kind,
                "name": found.name,
                "verdict": found.verdict,
                "field": found.field,
                "here": found.here,
                "there": found.there,
            }
            for found in comparison.differences
        ],
        "declined": {address: dict(comparison.here.declined), other: dict(comparison.there.declined)},
    }
