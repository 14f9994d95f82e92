"""`routebook simulate`"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
import uvloop

from routebook.cli.command import DURATION, command, connection_options
from routebook.cli.contexts import chosen_connection
from routebook.cli.forms import as_json, print_json
from routebook.cli.output import ProgressLine, print_fields
from routebook.model.broker import DEFAULT_TIMEOUT_MS
from routebook.model.names import check_address
from routebook.runtime import exits
from routebook.runtime.ports import allow_connections
from routebook.runtime.stopping import Stop
from routebook.simulate.plan import DEFAULT_FIRST_ADDRESS, Churn, Layout
from routebook.simulate.records import Counts, Journal, Recorder
from routebook.simulate.simulation import Options, Simulation

STOP_S = 60.0
"""At the end, how long all brokers together may take to deregister."""

_TROUBLE_HELP = {
    "crash": "Kill a broker, which returns after some seconds.",
    "deploy": "Shut a broker down, which returns, sometimes at another address.",
    "switch": "Make a slave the master, in half the cases after a crash of the master. Needs --slaves.",
    "silence": "Let a broker keep its connections but send nothing until it has expired.",
    "permission": "Remove the write permission of a group's topics, and restore it.",
    "flap": "Kill a broker several times, seconds apart.",
    "topics": "Create, resize or delete a topic.",
}


def _churn_options(command: Any) -> Any:
    for name, text in reversed(_TROUBLE_HELP.items()):
        command = click.option(f"--{name}-every", default=0.0, type=DURATION, help=f"{text} The average interval.")(
            command
        )
    return command


@command("simulate")
@click.option(
    "-n",
    "--name-servers",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="ADDRESSES",
    help="host:port;host:port. Brokers register with all of them; each client uses one.",
)
@click.option(
    "--brokers",
    default=10,
    type=click.IntRange(1, 5000),
    show_default=True,
    help="Number of groups; each has a master.",
)
@click.option("--slaves", default=0, type=click.IntRange(0, 8), show_default=True, help="Slaves of each group.")
@click.option("--clusters", default=1, type=click.IntRange(1), show_default=True)
@click.option("--topics", default=20, type=click.IntRange(0, 1_000_000), show_default=True)
@click.option("--clients", default=0, type=click.IntRange(0, 50_000), show_default=True)
@click.option("--period", default=30.0, type=DURATION, help="Interval of registrations, 10s to 60s.  [default: 30s]")
@click.option(
    "--poll", default=30.0, type=DURATION, help="Interval at which a client looks up its topics.  [default: 30s]"
)
@click.option(
    "--timeout-ms",
    default=None,
    type=click.IntRange(1000, 86_400_000),
    help="Heartbeat timeout that brokers request; the default is the name server's (120 s).",
)
@click.option("--duration", default=0.0, type=DURATION, help="End after this time.  [default: at Ctrl-C]")
@click.option("--seed", default=1, type=int, show_default=True, help="Determines the fleet and all troubles.")
@_churn_options
@click.option("--prefix", default="sim", show_default=True, help="Prefix of all names.")
@click.option(
    "--first-address",
    default=DEFAULT_FIRST_ADDRESS,
    show_default=True,
    help="Address of the first broker; the others use the following hosts. All must belong to this machine.",
)
@click.option("--go-away/--no-go-away", default=True, help="Whether clients support GO_AWAY (1500).")
@click.option("--vanish", is_flag=True, help="At the end, stop all brokers at once, without deregistration.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a lookup failed or a registration was refused.")
@click.option(
    "--log",
    "log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all events to this file, as JSON lines.",
)
@click.option(
    "--answers",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Look up routes at --url (its first address) during the run; write each response and its version here, as "
    "JSON lines.",
)
@connection_options
@as_json
def simulate_command(
    *,
    name_servers: str,
    brokers: int,
    slaves: int,
    clusters: int,
    topics: int,
    clients: int,
    period: float,
    poll: float,
    timeout_ms: int | None,
    duration: float,
    seed: int,
    prefix: str,
    first_address: str,
    go_away: bool,
    vanish: bool,
    strict: bool,
    log: Path | None,
    answers: Path | None,
    json_: bool,
    **every: float,
) -> int:
    """Simulate a fleet of brokers and clients against real name servers.

    Ctrl-C ends it; the brokers deregister first.

    Not simulated: messages, acting masters and their heartbeats, static topics, ordered topics, zones, TLS, signatures
    and PROXY headers.

    \b
    routebook simulate --brokers 20 --slaves 1 --topics 100 --clients 50
    routebook simulate --brokers 50 --crash-every 10s --duration 5m --log events.jsonl
    """
    if every["switch_every"] and not slaves:
        raise click.UsageError("--switch-every needs --slaves, since a slave becomes the master.")
    options = Options(
        name_servers=addresses_of(name_servers),
        layout=Layout(brokers, slaves, clusters, topics, prefix, first_address),
        churn=Churn(
            timeout_ms=timeout_ms or DEFAULT_TIMEOUT_MS,
            duration_s=duration,
            **{f"{name}_s": seconds for name, seconds in every.items()},
        ),
        seed=seed,
        clients=clients,
        poll_s=max(poll, 0.1),
        period_s=period,
        timeout_ms=timeout_ms,
        follows_go_away=go_away,
    )
    connection = chosen_connection()
    url, verify = connection.urls[0], connection.tls_files.context(connection.urls[0])
    # A broker has its own port and a connection to each name server; a client has one connection.
    allow_connections((1 + len(options.name_servers)) * brokers * (1 + slaves) + clients)
    with _opened("--log", log) as log_file, _opened("--answers", answers) as answers_file:
        recorder = Recorder(url, answers_file, seed=seed, verify=verify) if answers_file else None
        run = _SimulationRun(Simulation(options, Journal(log_file)), recorder, orderly=not vanish)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run.execute())
    counts = run.simulation.counts
    if json_:
        print_json(counts.document())
    else:
        print_fields(_summary(counts, run.simulation))
    refused = sum(count for outcome, count in counts.registrations.items() if outcome.isdigit() and outcome != "0")
    return exits.ANSWER_IS_NO if strict and (counts.failed or refused) else exits.DONE


def addresses_of(text: str) -> list[str]:
    found = [address.strip() for address in text.replace(",", ";").split(";") if address.strip()]
    return [check_address("--name-servers", address) for address in dict.fromkeys(found)] or [
        check_address("--name-servers", text)
    ]


@contextlib.contextmanager
def _opened(option: str, path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{option}: {path} cannot be written: {error.strerror}.") from error
    with file:
        yield file


@dataclass
class _SimulationRun:
    simulation: Simulation
    recorder: Recorder | None
    orderly: bool

    async def execute(self) -> None:
        stop = Stop()
        with stop.on_signals(), ProgressLine() as line:
            work = asyncio.create_task(self._work())
            progress = asyncio.create_task(self._show_progress(line))
            stopped = asyncio.create_task(stop.asked.wait())
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, progress, stopped):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await progress
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await work
            finally:
                await stop.within(
                    STOP_S, self.simulation.end(orderly=self.orderly), "The deregistration of the brokers"
                )

    async def _work(self) -> None:
        await self.simulation.start()
        tasks = {asyncio.create_task(self.simulation.run_plan())}
        if self.recorder:
            tasks.add(asyncio.create_task(self.recorder.run()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show_progress(self, line: ProgressLine) -> None:
        start, simulation = time.monotonic(), self.simulation
        while True:
            await asyncio.sleep(0.5)
            counts = simulation.counts
            up = sum(broker.state == "up" for broker in simulation.brokers)
            line.show("second", f"{time.monotonic() - start:.0f}")
            line.show("brokers", f"{up} of {len(simulation.brokers)} up")
            line.show("registered", str(counts.registrations["0"]))
            line.show("troubles", str(counts.troubles.total()))
            line.show("lookups", f"{counts.lookups}, {counts.failed} failed")


def _summary(counts: Counts, simulation: Simulation) -> list[tuple[str, object]]:
    latencies = counts.latencies
    troubles = [f"{kind} {count}" for kind, count in sorted(counts.troubles.items())]
    rows: list[tuple[str, object]] = [
        ("brokers", len(simulation.brokers)),
        ("registrations", _outcome_texts(counts.registrations)),
        ("troubles", troubles),
        ("connections lost", counts.connections_lost),
    ]
    if counts.lookups:
        percentiles = [f"p{100 * share:g} {latencies.percentile(share):.2f}" for share in (0.5, 0.99, 0.999)]
        rows += [
            (
                "lookups",
                f"{counts.lookups}: {counts.found} found, {counts.not_found} not found, {counts.failed} failed",
            ),
            ("failures", _outcome_texts(counts.failures)),
            ("retries", counts.retries),
            ("name servers changed", counts.switches),
            ("latency in ms", [*percentiles, f"longest {latencies.longest_ms:.2f}"]),
        ]
    return rows


def _outcome_texts(outcomes: Mapping[str, int]) -> list[str]:
    words = {outcome: f"with code {outcome}" if outcome.isdigit() else outcome for outcome in outcomes} | {
        "0": "accepted"
    }
    return [f"{count} {words[outcome]}" for outcome, count in sorted(outcomes.items())]
