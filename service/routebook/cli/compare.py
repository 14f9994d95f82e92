"""`routebook compare ADDRESS [OTHER]`"""

import asyncio
import ssl
from collections.abc import Iterable

import click

from routebook.cli.output import ProgressLine, print_table
from routebook.cli.service_client import Service, as_json, print_json, with_service
from routebook.client.name_server import NameServer
from routebook.compare.collecting import Questions, Said
from routebook.compare.comparison import Compared, compare_servers
from routebook.compare.differences import Difference, text_of
from routebook.errors import PeerUnavailableError
from routebook.model.names import check_address
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.runtime import exits


@click.command("compare")
@click.argument("address")
@click.argument("other", required=False)
@click.option(
    "--settle",
    default=2.0,
    type=click.FloatRange(0, 600),
    show_default=True,
    metavar="SECONDS",
    help="Ask again what differed after so long; only what differs both times counts.",
)
@click.option("--kv", "namespaces", multiple=True, metavar="NAMESPACE", help="Compare these key-values as well.")
@click.option("--settings", is_flag=True, help="Compare the settings too that brokers and clients notice.")
@click.option(
    "--timeout",
    default=3.0,
    type=click.FloatRange(0.1, 600),
    show_default=True,
    metavar="SECONDS",
    help="Of each request.",
)
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
    timeout: float,
    tls: bool,
    json_: bool,
) -> int:
    """What two name servers say differently: ADDRESS and OTHER, or ADDRESS and this service.

    Any server will do that speaks RocketMQ's remoting protocol, Apache's included. Everything is asked: brokers,
    clusters, every topic's route, ordered topics.
    """
    check_address("ADDRESS", address)
    second = check_address("OTHER", other) if other else remoting_address_of(service)
    questions = Questions(tuple(dict.fromkeys((ORDER_TOPIC_NAMESPACE, *namespaces))), settings)
    with ProgressLine() as line:
        compared = asyncio.run(
            _compare(address, second, questions, settle=settle, timeout_ms=int(timeout * 1000), tls=tls, line=line)
        )
    if json_:
        print_json(_document(compared, address, second))
    else:
        _print(compared, address, second)
    return exits.DONE if compared.equal else exits.ANSWER_IS_NO


def remoting_address_of(service: Service) -> str:
    """Where this service is a name server: as the worker that answers says it of itself, on the host that was asked."""
    status = service.get("/v1/status")
    about: dict[str, object] = next(
        (one["about"] for one in status["workers"] if one["worker"] == status["worker"]), {}
    )
    host = service.http.base_url.host
    port = about.get("remoting_port")
    if port:
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with service.connection_errors():
        named = service.http.get("/rocketmq/nsaddr").text
    return check_address("remoting address of the service", named.split(";")[0])


def unverified() -> ssl.SSLContext:
    """As RocketMQ's own clients connect: encrypted, whoever it is. The certificates of its tools name no host."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _compare(
    address: str, other: str, questions: Questions, *, settle: float, timeout_ms: int, tls: bool, line: ProgressLine
) -> Compared:
    context = unverified() if tls else None
    connecting = [NameServer.connect(one, timeout_ms=timeout_ms, tls=context) for one in (address, other)]
    servers = await asyncio.gather(*connecting, return_exceptions=True)
    try:
        failures = [one for one in servers if isinstance(one, BaseException)]
        if failures:
            raise _together(failures)
        here, there = (one for one in servers if isinstance(one, NameServer))
        return await compare_servers(here, there, questions, settle_s=settle, progress=line.show_routes)
    finally:
        for one in servers:
            if isinstance(one, NameServer):
                await one.close()


def _together(failures: list[BaseException]) -> BaseException:
    """Both are named when both are away."""
    unavailable = [one for one in failures if isinstance(one, PeerUnavailableError)]
    if len(unavailable) < 2:
        return failures[0]
    return exits.ServiceUnreachableError(" ".join(str(one) for one in unavailable))


def _print(compared: Compared, address: str, other: str) -> None:
    rows = [
        (one.kind, one.name, one.field or one.verdict.replace("here", address).replace("there", other), *_cells(one))
        for one in compared.differences
    ]
    if rows:
        print_table(("kind", "name", "what", address, other), rows)
    click.echo(_summary(compared, address, other))
    for said, whose in ((compared.here, address), (compared.there, other)):
        for question, reason in said.declined.items():
            click.echo(f"Not compared: {whose} does not tell its {question} ({reason}).", err=True)


def _cells(one: Difference) -> tuple[str, str]:
    here, there = (None if value is None else text_of(value) for value in (one.here, one.there))
    return here or "-", there or "-"


def _summary(compared: Compared, address: str, other: str) -> str:
    settled = f" {compared.settled} more settled while we looked." if compared.settled else ""
    scope = f"{_count(compared.here)} at {address}, {_count(compared.there)} at {other}"
    if compared.equal:
        return f"Equal: {scope}.{settled}"
    counts = _verdicts(compared.differences)
    only = f"{counts['only here']} only at {address}, {counts['only there']} only at {other}"
    return f"Different: {only}, {counts['differs']} differ; {scope}.{settled}"


def _verdicts(differences: Iterable[Difference]) -> dict[str, int]:
    """Of things: one that differs in three fields differs once."""
    verdicts = {one.thing: one.verdict for one in differences}
    return {verdict: list(verdicts.values()).count(verdict) for verdict in ("only here", "only there", "differs")}


def _count(said: Said) -> str:
    topics = sum(route is not None for route in said.routes.values())
    return f"{len(said.clusters)} clusters, {len(said.groups)} broker groups, {topics} topics"


def _document(compared: Compared, address: str, other: str) -> dict[str, object]:
    return {
        "here": address,
        "there": other,
        "equal": compared.equal,
        "settled": compared.settled,
        "counts": _verdicts(compared.differences),
        "differences": [
            {
                "kind": one.kind,
                "name": one.name,
                "verdict": one.verdict,
                "field": one.field,
                "here": one.here,
                "there": one.there,
            }
            for one in compared.differences
        ],
        "declined": {address: dict(compared.here.declined), other: dict(compared.there.declined)},
    }
