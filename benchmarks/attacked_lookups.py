"""How long do lookups take while a peer sends registrations that inflate (row A1 of tests/attacks)?

Two workers, each its own process on a store of its own; one of them is attacked, and lookups ask the other one or the
same. Each round has three phases, in an order that changes:

    calm        no attack
    control     the other worker is attacked: the generator, the store and that worker compete for the processors
    attacked    the worker that is asked is attacked

So `attacked / calm` is what a client of this machine sees, and `attacked / control` is the part that the worker itself
causes. The attack, from 250 connections of one address, is 250 registrations a second: beyond the limits (700,000
topics, refused) or within them (30,000 topics in 2 KB). The lookups, the generator and the workers are processes of
their own. The median of the rounds is shown.

    .venv/bin/python -m benchmarks.attacked_lookups [--rounds 5] [--seconds 9]

Result: docs/benchmarks/lookups.md
"""

import argparse
import asyncio
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.load.servers import Running, routebook
from tests.attacks.attacked_service import ATTACKER, HealthyBroker, inflating_registration
from tests.attacks.lookups import Lookups
from tests.attacks.test_inflated_registrations import CONNECTIONS, FORMS, attack
from tests.support.peers import Peer

TARGET = 3.0
PHASES = ("calm", "control", "attacked")
ENDS_S = 2.0
"""After an attack, until the worker has finished the requests that it has accepted."""


def address_of(server: Running) -> str:
    return f"127.0.0.1:{server.port}"


async def generate(address: str, topics: int, seconds: float) -> None:
    """The process of the generator. Prints the codes of the answers."""
    body = inflating_registration(topics)
    async with AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(await Peer.connect(address, local_addr=ATTACKER))
            for _ in range(CONNECTIONS)
        ]
        codes: list[int] = []
        attacks = [asyncio.create_task(attack(peer, number, body, codes, seconds)) for number, peer in enumerate(peers)]
        print("ready", flush=True)
        await asyncio.sleep(seconds)
        for task in attacks:
            task.cancel()
        print(dict(Counter(codes)), flush=True)


@asynccontextmanager
async def attacking(server: Running, topics: int, seconds: float, codes: Counter[str]) -> AsyncIterator[None]:
    command = (sys.executable, "-m", "benchmarks.attacked_lookups", "--generate", address_of(server))
    options = ("--topics", str(topics), "--seconds", str(seconds + 1))
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    if await process.stdout.readline() != b"ready\n":
        raise SystemExit("The generator ended early.")
    yield
    codes[(await process.stdout.readline()).decode().strip()] += 1
    await process.wait()
    await asyncio.sleep(ENDS_S)


async def measure(rounds: int, seconds: float) -> None:
    async with AsyncExitStack() as stack:
        asked, other = (stack.enter_context(routebook()) for _ in range(2))
        broker = HealthyBroker(
            await stack.enter_async_context(await Peer.connect(address_of(asked))), 0, timeout_ms=6000
        )
        await broker.register()
        registering = asyncio.create_task(broker.keep_registering(0.5))
        lookups = await stack.enter_async_context(Lookups(address_of(asked), broker.topic))
        await lookups.run(1)
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; "
            f"Python {platform.python_version()}; {rounds} rounds of {seconds:g} s; {time.strftime('%Y-%m-%d')}"
        )
        print("\np99 of lookups in ms; ! marks a target that is missed\n")
        print("attack               calm  control  attacked  attacked/control  attacked/calm")
        for name, topics in FORMS.items():
            found: dict[str, list[float]] = {phase: [] for phase in PHASES}
            codes: Counter[str] = Counter()
            for number in range(rounds):
                for phase in PHASES if number % 2 else PHASES[::-1]:
                    if phase == "calm":
                        found[phase].append(await lookups.run(seconds))
                        continue
                    async with attacking(asked if phase == "attacked" else other, topics, seconds, codes):
                        found[phase].append(await lookups.run(seconds))
            show(name, found)
            print(f"    rounds: {'; '.join(f'{phase} {milliseconds(p99s)}' for phase, p99s in found.items())}")
            print(f"    codes of the answers: {', '.join(codes)}")
        registering.cancel()
        if lookups.codes != {0} or set(broker.codes) != {0}:
            raise SystemExit(f"Refused: lookups {lookups.codes}, registrations {set(broker.codes)}")


def milliseconds(seconds: list[float]) -> str:
    return " ".join(f"{one * 1000:.2f}" for one in seconds)


def show(name: str, found: dict[str, list[float]]) -> None:
    p99s = [statistics.median(found[phase]) * 1000 for phase in PHASES]
    by_worker, by_all = (
        statistics.median(one / two for one, two in zip(found["attacked"], found[base], strict=True))
        for base in ("control", "calm")
    )
    marks = ["!" if ratio > TARGET else " " for ratio in (by_worker, by_all)]
    print(
        f"{name:18}{p99s[0]:7.2f}{p99s[1]:9.2f}{p99s[2]:10.2f}"
        f"{by_worker:11.1f} <= {TARGET:g}{marks[0]}{by_all:9.1f} <= {TARGET:g}{marks[1]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--generate", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--topics", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        asyncio.run(generate(arguments.generate, arguments.topics, arguments.seconds))
    else:
        asyncio.run(measure(arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    main()
