"""`routebook simulate`"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
import uvloop

from routebook.cli.output import DURATION, ProgressLine, print_fields
from routebook.cli.service_client import DEFAULT_URL, URL_VARIABLE, as_json, print_json
from routebook.model.broker import DEFAULT_TIMEOUT_MS
from routebook.model.names import check_address
from routebook.runtime import exits
from routebook.runtime.ports import allow_connections
from routebook.runtime.stopping import Stop
from routebook.simulate.layout import DEFAULT_FIRST_ADDRESS, Layout
from routebook.simulate.plan import Churn
from routebook.simulate.records import Counts, Journal, Recorder
from routebook.simulate.simulation import Options, Simulation

STOP_S = 60.0
"""For all brokers to unregister."""

_EVERY = {
    "crash": "Kill a broker; it returns after some seconds.",
    "deploy": "Stop a broker in order; it returns, sometimes under another address.",
    "switch": "Make a slave the master, half the time because the master crashed. Needs --slaves.",
    "silence": "Let a broker keep its connections and say nothing until it must have expired.",
    "permission": "Take the write permission of a group's topics away, and give it back.",
    "flap": "Kill a broker several times, seconds apart.",
    "topics": "Make, resize or delete a topic.",
}


def _churn_options(command: Any) -> Any:
    for name, does in reversed(_EVERY.items()):
        command = click.option(f"--{name}-every", default=0.0, type=DURATION, help=f"{does} On average so often.")(
            command
        )
    return command


@click.command("simulate")
@click.option(
    "-n",
    "--name-servers",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="ADDRESSES",
    help="host:port;host:port. Brokers register with all of them, a client asks one.",
)
@click.option("--brokers", default=10, type=click.IntRange(1, 5000), show_default=True, help="Groups with a master.")
@click.option("--slaves", default=0, type=click.IntRange(0, 8), show_default=True, help="Of each group.")
@click.option("--clusters", default=1, type=click.IntRange(1), show_default=True)
@click.option("--topics", default=20, type=click.IntRange(0, 1_000_000), show_default=True)
@click.option("--clients", default=0, type=click.IntRange(0, 50_000), show_default=True)
@click.option("--period", default=30.0, type=DURATION, help="Of registrations: 10s to 60s.  [default: 30s]")
@click.option("--poll", default=30.0, type=DURATION, help="How often a client asks for its topics.  [default: 30s]")
@click.option(
    "--timeout-ms",
    default=None,
    type=click.IntRange(1000, 86_400_000),
    help="Heartbeat timeout that brokers ask for; else the name server's own (120 s).",
)
@click.option("--duration", default=0.0, type=DURATION, help="End after so long.  [default: with Ctrl-C]")
@click.option(
    "--seed", default=1, type=int, show_default=True, help="Decides who is in the fleet and what happens to whom."
)
@_churn_options
@click.option("--prefix", default="sim", show_default=True, help="Of all names.")
@click.option(
    "--first-address",
    default=DEFAULT_FIRST_ADDRESS,
    show_default=True,
    help="Where the first broker listens; each further one on the next host. All must be this machine's.",
)
@click.option("--go-away/--no-go-away", default=True, help="Whether clients follow a name server's wish to go (1500).")
@click.option("--vanish", is_flag=True, help="At the end brokers do not unregister: all are gone at once.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a lookup failed or a registration was refused.")
@click.option(
    "--log", "log", type=click.Path(path_type=Path, dir_okay=False), help="Write what happened, as JSON lines."
)
@click.option(
    "--answers",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Ask the worker at --url for routes all the while; write what it answered at which version, as JSON lines.",
)
@click.option("--url", default=None, help=f"For --answers; else {URL_VARIABLE}, else {DEFAULT_URL}.")
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
    url: str | None,
    json_: bool,
    **every: float,
) -> int:
    """Simulate a fleet of brokers and clients that speaks to real name servers.

    Ctrl-C ends it in order: brokers unregister.
    """
    if every["switch_every"] and not slaves:
        raise click.UsageError("--switch-every needs --slaves: there is nobody to become master.")
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
    # Its own port and a line to each name server; a client has one.
    allow_connections((1 + len(options.name_servers)) * brokers * (1 + slaves) + clients)
    with _opened("--log", log) as log_file, _opened("--answers", answers) as answers_file:
        chosen_url = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        recorder = Recorder(chosen_url, answers_file, seed=seed) if answers_file else None
        run = _Run(Simulation(options, Journal(log_file)), recorder, orderly=not vanish)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run.whole())
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
class _Run:
    simulation: Simulation
    recorder: Recorder | None
    orderly: bool

    async def whole(self) -> None:
        stop = Stop()
        with stop.on_signals(), ProgressLine() as line:
            work = asyncio.create_task(self._work())
            telling = asyncio.create_task(self._tell(line))
            asked = asyncio.create_task(stop.asked.wait())
            await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, telling, asked):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await work
            finally:
                await stop.within(STOP_S, self.simulation.end(orderly=self.orderly), "Unregistering the brokers")

    async def _work(self) -> None:
        await self.simulation.start()
        under_way = {asyncio.create_task(self.simulation.run_plan())}
        if self.recorder:
            under_way.add(asyncio.create_task(self.recorder.run()))
        try:
            done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _tell(self, line: ProgressLine) -> None:
        began, simulation = time.monotonic(), self.simulation
        while True:
            await asyncio.sleep(0.5)
            counts = simulation.counts
            up = sum(broker.state == "up" for broker in simulation.brokers)
            line.show("second", f"{time.monotonic() - began:.0f}")
            line.show("brokers", f"{up} of {len(simulation.brokers)} up")
            line.show("registered", str(counts.registrations["0"]))
            line.show("troubles", str(counts.troubles.total()))
            line.show("lookups", f"{counts.lookups}, {counts.failed} failed")


def _summary(counts: Counts, simulation: Simulation) -> list[tuple[str, object]]:
    spread = counts.latencies
    troubles = [f"{kind} {count}" for kind, count in sorted(counts.troubles.items())]
    rows: list[tuple[str, object]] = [
        ("brokers", len(simulation.brokers)),
        ("registrations", _told(counts.registrations)),
        ("troubles", troubles),
        ("connections lost", counts.connections_lost),
    ]
    if counts.lookups:
        percentiles = [f"p{100 * share:g} {spread.percentile(share):.2f}" for share in (0.5, 0.99, 0.999)]
        rows += [
            (
                "lookups",
                f"{counts.lookups}: {counts.found} found, {counts.not_found} not found, {counts.failed} failed",
            ),
            ("failures", _told(counts.failures)),
            ("retries", counts.retries),
            ("name servers changed", counts.switches),
            ("latency in ms", [*percentiles, f"longest {spread.longest_ms:.2f}"]),
        ]
    return rows


def _told(outcomes: Mapping[str, int]) -> list[str]:
    words = {outcome: f"with code {outcome}" if outcome.isdigit() else outcome for outcome in outcomes} | {"0": "taken"}
    return [f"{count} {words[outcome]}" for outcome, count in sorted(outcomes.items())]
