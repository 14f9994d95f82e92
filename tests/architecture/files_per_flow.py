"""How many files of ours does a request pass through? Traces one worker in its own process, through its real port.

Counted are the files below `service/routebook` of which a function is called between a request and its answer, and the
moves: how often a call lands in another file than the call before it. Periodic tasks that no request causes, such as
the probe of the event loop ten times a second, are not traced. A flow is traced several times and the smallest count is
taken, because other background work (renewing the lease, scanning deadlines) may fall into a trace.

    python -m tests.architecture.files_per_flow [CHECKOUT]

CHECKOUT is another checkout with its own .venv.
"""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.architecture.sources import ROOT

TRIES = 5
START_SECONDS = 60.0
TIMEOUT_MS = 1_000
SCAN_MS = 200
SETTLE_S = 0.5
"""Time for the work after an answer, such as other reads of the history, to end."""

_TRACER = """
import asyncio, json, sys, threading
from pathlib import Path
import routebook
OURS = str(Path(routebook.__file__).parent) + "/"
PERIODIC = {"pace", "presence", "restoring", "heartbeat gaps", "pulse", "tls", "remoting sweep", "remoting watermark"}
files, is_recording, moves, last = set(), False, 0, ""

def trace(frame, event, argument):
    global moves, last
    if is_recording and event == "call":
        name = frame.f_code.co_filename
        if name.startswith(OURS) and task_name() not in PERIODIC:
            files.add(name[len(OURS):])
            moves += name != last
            last = name

def task_name():
    try:
        task = asyncio.current_task()
    except RuntimeError:  # outside the event loop
        return ""
    return task.get_name() if task else ""

def follow_commands():
    global is_recording, moves, last
    for line in sys.stdin:
        is_recording = False
        if line == "start\\n":
            files.clear()
            moves, last = 0, ""
            is_recording = True
        sys.stderr.write(json.dumps({"files": sorted(files), "moves": moves}) + "\\n")
        sys.stderr.flush()

threading.Thread(target=follow_commands, daemon=True).start()
threading.setprofile(trace)
sys.setprofile(trace)
sys.argv = ["routebook", *sys.argv[1:]]
from routebook.__main__ import main
main()
"""


@dataclass(frozen=True, slots=True)
class Trace:
    files: tuple[str, ...]
    moves: int


class TracedWorker:
    """`routebook up` in its own process, with a tracer that is switched on and off over standard input."""

    def __init__(self, folder: Path, checkout: Path | None = None) -> None:
        python = str(checkout / ".venv/bin/python") if checkout else sys.executable
        arguments = ["up", "--remoting-port", "0", "--http-port", "0", "--admin-port", "0", "--log-level", "error"]
        arguments += ["--scan-not-active-broker-interval-ms", str(SCAN_MS), "--connection-grace-ms", "600000"]
        self._process = subprocess.Popen(
            [python, "-c", _TRACER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        self.port = 0

    def __enter__(self) -> Self:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.strip().startswith("RocketMQ"):
                self.port = int(line.split()[1].rpartition(":")[2])
            if line.startswith("Ctrl-C"):
                return self
        raise AssertionError(f"the worker ended: {self._process.communicate()[1]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=START_SECONDS)

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Trace]]:
        """The trace is in the list at the end."""
        self._command("start")
        found: list[Trace] = []
        yield found
        reply = self._command("stop")
        found.append(Trace(tuple(reply["files"]), reply["moves"]))

    def _command(self, word: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stderr
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stderr.readline())
        return reply


class Client:
    """One connection that speaks RocketMQ's protocol, without the product's code for it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._stream = self._socket.makefile("rb")
        self._opaque = 0

    def request(self, code: int, ext: dict[str, str], body: object = None) -> None:
        self._opaque += 1
        header = {"code": code, "flag": 0, "language": "JAVA", "version": 475, "opaque": self._opaque, "extFields": ext}
        head = json.dumps(header).encode()
        tail = b"" if body is None else json.dumps(body).encode()
        self._socket.sendall(struct.pack(">II", 4 + len(head) + len(tail), len(head)) + head + tail)
        length, header_length = struct.unpack(">II", self._stream.read(8))
        answer = json.loads(self._stream.read(length - 4)[:header_length])
        assert answer["code"] == 0, answer

    def wait_until_closed(self) -> None:
        assert self._stream.read(1) == b""

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def register(client: Client, broker: str, *, timeout_ms: int = 600_000) -> None:
    topic = {"topicName": f"topic-of-{broker}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    other = {**topic, "topicName": f"other-topic-of-{broker}"}
    table = {one["topicName"]: {**one, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0} for one in (topic, other)}
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}
    ext = {"brokerName": broker, "brokerAddr": "127.0.0.1:9", "clusterName": broker, "brokerId": "0"}
    client.request(103, {**ext, "haServerAddr": "", "heartbeatTimeoutMillis": str(timeout_ms)}, body)


def trace_first_registration(worker: TracedWorker, number: int) -> Trace:
    """With the broker's connection, as it arrives."""
    time.sleep(SETTLE_S)  # the closing of the previous connection has to be over
    with worker.recording() as found:
        client = Client(worker.port)
        register(client, f"first-{number}")
    client.close()
    return found[0]


def trace_repeated_registration(worker: TracedWorker, number: int) -> Trace:
    client = Client(worker.port)
    register(client, f"repeated-{number}")
    register(client, f"repeated-{number}")
    time.sleep(SETTLE_S)
    with worker.recording() as found:
        register(client, f"repeated-{number}")
    client.close()
    return found[0]


def trace_lookup(worker: TracedWorker, number: int) -> Trace:
    client = Client(worker.port)
    register(client, f"lookup-{number}")
    for _ in range(5):
        client.request(105, {"topic": f"topic-of-lookup-{number}"})
    time.sleep(SETTLE_S)
    # Ten times a second, one lookup is timed: this one, so that the next is an ordinary one.
    client.request(105, {"topic": f"topic-of-lookup-{number}"})
    with worker.recording() as found:
        client.request(105, {"topic": f"topic-of-lookup-{number}"})
    client.close()
    return found[0]


def trace_expiry(worker: TracedWorker, number: int) -> Trace:
    """From just before the deadline until the worker closes the expired broker's connection."""
    client = Client(worker.port)
    register(client, f"expired-{number}", timeout_ms=TIMEOUT_MS)
    time.sleep(TIMEOUT_MS / 1000 - 0.05)
    with worker.recording() as found:
        client.wait_until_closed()
    client.close()
    return found[0]


FLOWS: dict[str, Callable[[TracedWorker, int], Trace]] = {
    "first registration": trace_first_registration,
    "repeated registration": trace_repeated_registration,
    "lookup": trace_lookup,
    "expiry": trace_expiry,
}


def measure(folder: Path, checkout: Path | None = None) -> dict[str, Trace]:
    with TracedWorker(folder, checkout) as worker:
        return {
            name: min((trace(worker, number) for number in range(TRIES)), key=lambda one: (len(one.files), one.moves))
            for name, trace in FLOWS.items()
        }


def main() -> None:
    import tempfile  # noqa: PLC0415 only for the command

    checkout = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), checkout)
    print(f"{'flow':24}files  moves   ({checkout or ROOT.name})")
    for name, trace in found.items():
        print(f"{name:24}{len(trace.files):5}{trace.moves:7}   {' '.join(trace.files)}")


if __name__ == "__main__":
    main()
