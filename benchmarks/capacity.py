"""How many workers, and how much memory and network, does a fleet of a given size need?

    .venv/bin/python -m benchmarks.capacity [--seconds 2]

Measures what a connection, an entry (a topic on a broker), a lookup and a repeated registration cost one worker and its
store, and computes the table of docs/capacity.md from that. Memory and bytes do not depend on other load. CPU time is
that of the worker and the store; other load makes it longer, never shorter.
"""

import argparse
import itertools
import math
import os
import platform
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmarks.load.frames import Peer, body_of, lookup, registration
from benchmarks.load.generator import Load, build, run
from benchmarks.load.servers import Running, routebook
from routebook.settings.catalogue import all_settings
from routebook.store.embedded import EmbeddedStore

PERIOD_S = 30
"""RocketMQ's default interval of registrations, and of a client's lookups of each of its topics."""
TOPICS_OF_A_CLIENT = 5
BROKERS_OF_A_TOPIC = 8
USABLE_SHARE = 0.5
"""Planned share of a core and of `max_connections`. The rest is for restarts, when peers move to other workers."""
FLEETS = ((6, 200, 500), (40, 2_000, 5_000), (200, 10_000, 20_000), (1_000, 50_000, 100_000))
"""Masters, topics, clients."""

IDLE_CONNECTIONS = 500
MEASURED_BROKERS = 50
SMALL, LARGE = 20, 1_020
"""Topics of a broker in two measurements. Their difference is what a topic costs."""
REPEATS = 100
SETTLE_S = 2.0
"""Until the replica has applied everything."""
MIB = 2**20


@dataclass(frozen=True)
class Linear:
    """A cost with a constant part, and a part for each topic."""

    constant: float
    each: float

    @classmethod
    def through(cls, small: float, large: float) -> "Linear":
        each = (large - small) / (LARGE - SMALL)
        return cls(small - SMALL * each, each)

    def of(self, topics: float) -> float:
        return self.constant + topics * self.each


@dataclass(frozen=True)
class Costs:
    empty_worker_bytes: float
    entry_bytes: float
    connection_bytes: float
    empty_store_bytes: float
    store_bytes_of_a_broker: Linear
    lookup_s: float
    lookup_bytes: int
    """Question and answer."""
    registration_s: Linear
    registration_bytes: Linear


def resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def store_bytes(store: EmbeddedStore) -> int:
    """Without the streams, whose size settings limit."""
    with redis.Redis.from_url(store.url, protocol=2) as client:
        streams = [key for key in client.scan_iter(count=1000) if client.type(key) == b"stream"]
        return int(client.info("memory")["used_memory"]) - sum(
            int(client.memory_usage(key, samples=0) or 0) for key in streams
        )


@contextmanager
def registered(server: Running, network: int, topics: int) -> Iterator[None]:
    """Each broker with a connection of its own, since a lost connection removes its brokers."""
    peers = [Peer(server.port) for _ in range(MEASURED_BROKERS)]
    for number, peer in enumerate(peers, start=1):
        names = [f"topic-of-some-length-{number:03d}-{topic:05d}" for topic in range(topics)]
        peer.ask(registration(f"broker-{network}-{number:03d}", f"127.0.{network}.{number}:10911", names))
    yield
    for peer in peers:
        peer.close()


def measure(seconds: float) -> Costs:
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedStore(None))
        server = stack.enter_context(routebook(shared=store))
        empty, empty_store = resident_bytes(server.process), store_bytes(store)
        worker, in_store = [], []
        # The first one warms up: it loads the scripts, for instance.
        for network, topics in ((20, SMALL), (21, SMALL), (22, LARGE)):
            stack.enter_context(registered(server, network, topics))
            time.sleep(SETTLE_S)
            worker.append(resident_bytes(server.process))
            in_store.append(store_bytes(store))
        small, large = (registration_cost(server, topics) for topics in (SMALL, LARGE))
        lookup_s, lookup_bytes = lookup_cost(server, seconds)
        connection = connection_bytes(server)
        each_broker = [(after - before) / MEASURED_BROKERS for before, after in itertools.pairwise(in_store)]
        return Costs(
            empty_worker_bytes=empty,
            entry_bytes=(worker[2] - worker[1]) / (MEASURED_BROKERS * LARGE),
            connection_bytes=connection,
            empty_store_bytes=empty_store,
            store_bytes_of_a_broker=Linear.through(*each_broker),
            lookup_s=lookup_s,
            lookup_bytes=lookup_bytes,
            registration_s=Linear.through(small[0], large[0]),
            registration_bytes=Linear.through(small[1], large[1]),
        )


def connection_bytes(server: Running) -> float:
    """What a connection costs after its first request, whose first bytes decide which protocol it speaks."""
    before = resident_bytes(server.process)
    peers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(IDLE_CONNECTIONS)]
    for peer in peers:
        peer.sendall(lookup("no-such-topic"))
        peer.recv(4096)
    found = (resident_bytes(server.process) - before) / IDLE_CONNECTIONS
    for peer in peers:
        peer.close()
    return found


def lookup_cost(server: Running, seconds: float) -> tuple[float, int]:
    """CPU time and bytes of the lookup of a topic on several brokers."""
    topic = "topic-that-clients-look-up"
    owners = [Peer(server.port) for _ in range(BROKERS_OF_A_TOPIC)]
    for number, owner in enumerate(owners, start=1):
        owner.ask(registration(f"broker-looked-up-{number}", f"127.0.23.{number}:10911", [topic, "another-topic"]))
    question = lookup(topic)
    answer = owners[0].ask(question)
    load, body = Load(32, 1), len(body_of(answer))
    result = run(build(), server.port, load, seconds, [question], body_bytes=body, process=server.process, paired=True)
    for owner in owners:
        owner.close()
    return 1 / result.per_cpu_second, len(question) + len(answer)


def registration_cost(server: Running, topics: int) -> tuple[float, float]:
    """CPU time of the worker and the store for a repeated registration, and its bytes."""
    peer = Peer(server.port)
    names = [f"topic-of-a-repeated-registration-{number:05d}" for number in range(topics)]
    request = registration(f"broker-repeated-{topics}", f"127.0.24.{topics}:10911", names)
    peer.ask(request)
    time.sleep(0.3)
    before = server.with_store_cpu_seconds()
    for _ in range(REPEATS):
        answer = peer.ask(request)
    after = server.with_store_cpu_seconds()
    peer.close()
    return (after - before) / REPEATS, len(request) + len(answer)


def needs(costs: Costs, masters: int, topics: int, clients: int) -> list[str]:
    entries = topics * min(BROKERS_OF_A_TOPIC, masters)
    lookups = clients * TOPICS_OF_A_CLIENT / PERIOD_S
    registrations = masters / PERIOD_S
    of_a_broker = entries / masters
    cores = lookups * costs.lookup_s + registrations * costs.registration_s.of(of_a_broker)
    connections = masters + clients
    limit = all_settings()["max_connections"].default
    # Two stay when one is restarted, or fails.
    workers = 1 + max(2, math.ceil(cores / USABLE_SHARE), math.ceil(connections / (limit * USABLE_SHARE)))
    table = 2 * entries * costs.entry_bytes  # a reload holds it twice
    worker = costs.empty_worker_bytes + table + 128 * MIB + connections / (workers - 1) * costs.connection_bytes
    streams = all_settings()["history_max_bytes"].default + all_settings()["pulse_max_bytes"].default
    store = costs.empty_store_bytes + masters * costs.store_bytes_of_a_broker.of(of_a_broker) + streams
    network = lookups * costs.lookup_bytes + registrations * costs.registration_bytes.of(of_a_broker)
    return [
        f"{masters:,}",
        f"{topics:,}",
        f"{clients:,}",
        f"{lookups:,.0f}",
        f"{cores:.2f}",
        f"{workers}",
        f"{worker / MIB:,.0f} MiB",
        f"{store / MIB:,.0f} MiB",
        f"{network * 8 / 1e6:,.1f} Mbit/s",
    ]


HEADER = (
    "masters",
    "topics",
    "clients",
    "lookups/s",
    "cores in use",
    "workers",
    "memory of a worker",
    "memory of the store",
    "network",
)


def print_costs(costs: Costs) -> None:
    broker, cpu, size = costs.store_bytes_of_a_broker, costs.registration_s, costs.registration_bytes
    print(f"a worker with an empty table: {costs.empty_worker_bytes / MIB:.0f} MiB")
    print(f"  and for each entry {costs.entry_bytes:.0f} bytes, for each connection {costs.connection_bytes:.0f} bytes")
    print(f"a store without a fleet: {costs.empty_store_bytes / MIB:.1f} MiB")
    print(f"  and for each broker {broker.constant:.0f} bytes, for each of its topics {broker.each:.0f} bytes")
    print(f"a lookup of {BROKERS_OF_A_TOPIC} brokers: {costs.lookup_s * 1e6:.1f} us of CPU, {costs.lookup_bytes} bytes")
    print(f"a repeated registration: {cpu.constant * 1e6:.0f} us of CPU, and {cpu.each * 1e6:.2f} us for each topic")
    print(f"  {size.constant:.0f} bytes, and {size.each:.0f} bytes for each topic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of the lookups' measurement")
    costs = measure(parser.parse_args().seconds)
    load = os.getloadavg()[0]
    print(
        f"{platform.machine()}, load average {load:.1f}; Python {platform.python_version()}; "
        f"{time.strftime('%Y-%m-%d')}\n"
    )
    print_costs(costs)
    print(f"\n| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for fleet in FLEETS:
        print(f"| {' | '.join(needs(costs, *fleet))} |")


if __name__ == "__main__":
    main()
