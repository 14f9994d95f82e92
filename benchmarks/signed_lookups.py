"""What does it cost to check the signature of each lookup?

Two Routebook workers, each its own process on a store of its own: one has default settings, the other one demands
signatures (`remoting_access=signed`). One compiled process (load/lookups.c) sends lookups to each of them in turn,
signed to the latter, and checks every answer. Each ratio is taken within one round; the median of the rounds is shown.

    .venv/bin/python -m benchmarks.signed_lookups [--rounds 5] [--seconds 2]

The load generator needs a C compiler. Result: docs/benchmarks/lookups.md
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack

from benchmarks.load.frames import Peer, body_of, lookup, registration, signed
from benchmarks.load.generator import Load, Result, build, run
from benchmarks.load.servers import Running, routebook
from tests.support.ports import free_port

SIZES = (2, 16, 100)
"""Brokers in the route."""
LOADS = (Load(32, 1), Load(256, 1))
ACCESS_KEY, SECRET = "benchmark", "secret-of-the-benchmark"
TARGET = 0.6


def create_identity(http_port: int) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".secret") as secret:
        secret.write(SECRET)
        secret.flush()
        command = [sys.executable, "-m", "routebook", "token", "create", "benchmark", "--role", "admin"]
        command += ["--access-key", ACCESS_KEY, "--secret-file", secret.name, "--url", f"http://127.0.0.1:{http_port}"]
        created = subprocess.run(command, capture_output=True, text=True, check=False)
    if created.returncode:
        raise SystemExit(created.stderr)


def topic_of(size: int) -> str:
    return f"orders-of-{size}-brokers"


def register(stack: ExitStack, server: Running, *, signs: bool) -> None:
    """Each broker over a connection of its own, which stays open."""
    for number in range(max(SIZES)):
        # A new broker with just one topic is refused, so each has another one.
        topics = [f"another-of-{number}", *(topic_of(size) for size in SIZES if number < size)]
        request = registration(f"broker-{number:03d}", f"127.0.0.{number + 1}:10911", topics)
        peer = Peer(server.port)
        stack.callback(peer.close)
        peer.ask(signed(request, ACCESS_KEY, SECRET) if signs else request)


def measure(rounds: int, seconds: float) -> None:
    generator, http_port = build(), free_port()
    with ExitStack() as stack:
        plain = stack.enter_context(routebook())
        strict = stack.enter_context(routebook(None, "--remoting-access", "signed", http_port=http_port))
        create_identity(http_port)
        time.sleep(1)  # an identity reaches all workers within a second
        register(stack, plain, signs=False)
        register(stack, strict, signs=True)
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; "
            f"Python {platform.python_version()}; {rounds} rounds of {seconds:g} s; {time.strftime('%Y-%m-%d')}"
        )
        print("\nLookups per CPU second, and p99; ! marks a target that is missed")
        print("brokers    load      unsigned        signed           ratio    p99 ms    signed")
        for size in SIZES:
            request = lookup(topic_of(size))
            requests = {plain: request, strict: signed(request, ACCESS_KEY, SECRET)}
            body_bytes = len(body_of(Peer(plain.port).ask(request)))
            for load in LOADS:
                found: dict[Running, list[Result]] = defaultdict(list)
                for number in range(rounds):
                    for server in (plain, strict) if number % 2 else (strict, plain):
                        result = run(
                            generator,
                            server.port,
                            load,
                            seconds,
                            [requests[server]],
                            body_bytes=body_bytes,
                            process=server.process,
                        )
                        found[server].append(result)
                show(size, load, found[plain], found[strict])


def show(size: int, load: Load, plain: list[Result], strict: list[Result]) -> None:
    pairs = zip(strict, plain, strict=True)
    ratio = statistics.median(one.per_cpu_second / other.per_cpu_second for one, other in pairs)
    speeds = [statistics.median(one.per_cpu_second for one in results) for results in (plain, strict)]
    p99s = [statistics.median(one.p99_us for one in results) / 1000 for results in (plain, strict)]
    mark = " " if ratio >= TARGET else "!"
    print(
        f"{size:7}  {load!s:>6}{speeds[0]:14,.0f}{speeds[1]:14,.0f}"
        f"{ratio:8.2f} >= {TARGET}{mark}{p99s[0]:9.2f}{p99s[1]:10.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    measure(arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
