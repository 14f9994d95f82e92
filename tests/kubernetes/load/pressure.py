"""Sends as many lookups as one core can, from outside the cluster, with the benchmarks' load generator.

The generator has one thread and checks every answer.
"""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.load.frames import lookup
from benchmarks.load.generator import Load, Result
from routebook.protocol.frame import RequestCode
from tests.kubernetes.load.caller import GO_AWAY_VERSION, Caller

LOAD: Final = Load(connections=8, in_flight=16)
SETTLE_S: Final = 2.0
"""Time to connect and for the first answers, which are not counted."""


def generate_lookups(generator: Path, address: str, topic: str, seconds: float) -> Result:
    """Runs for `SETTLE_S` plus `seconds`."""
    host, _, port = address.rpartition(":")
    body_bytes = len(asyncio.run(_body(address, topic)))
    numbers = (LOAD.connections, LOAD.in_flight, int(SETTLE_S * 1000), int(seconds * 1000), body_bytes, 1, 0)
    done = subprocess.run(
        [str(generator), host, port, *map(str, numbers)],
        input=lookup(topic),
        capture_output=True,
        timeout=SETTLE_S + seconds + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return Result(**json.loads(done.stdout))


async def _body(address: str, topic: str) -> bytes:
    caller = Caller([address], version=GO_AWAY_VERSION)
    try:
        return (await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).body
    finally:
        caller.close()
