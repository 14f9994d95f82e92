"""Sends fuzzed frames to a remoting port over many connections, and prints how many as JSON.

python -m tests.faults.frame_flood ADDRESS SEED SECONDS

With `protocol` instead of an address, the frames go to the code that reads them, without sockets: as many as a worker
reads in minutes are read in seconds. The last argument is then followed by the number of frames.
"""

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass

from routebook.protocol.connection import Connection
from routebook.protocol.frame import FrameLimits, PeerProtocolError, Request
from tests.protocol.fuzzing import frames
from tests.protocol.plain_frames import framed
from tests.support.peers import Peer

FRAMES = 200
"""In one connection, before the frame that is refused."""


@dataclass
class Sent:
    frames: int = 0
    connections: int = 0
    unanswered: int = 0
    longest_ms: float = 0.0
    """Processor time of one read, which has some hundred frames."""


def random_frame(source: random.Random) -> bytes:
    kind = source.randrange(6)
    if kind == 0:
        return frames.json_frame(source)
    if kind == 1:
        return frames.deep_frame(source)
    if kind == 2:
        return frames.wrong_binary_frame(source)
    if kind == 3:
        return frames.wrong_prefix(source)
    values = ",".join(f'"{name}":{source.choice(frames.VALUES)}' for name in source.sample(frames.KEYS, 3))
    code = source.choice([105, 105, 105, 322, 901, 999, -1, 2**31 - 1])
    ext = f'{{"topic":{source.choice(frames.VALUES)}}}'
    header = f'{{"code":{code},"opaque":{source.randrange(1000)},"extFields":{ext}'
    return framed((header + ("}" if kind == 4 else f",{values}}}")).encode("utf-8", "surrogatepass"))


async def is_refused(address: str, frame: bytes) -> bool:
    """Whether the port closes the connection after this frame. Otherwise it answers the lookup that follows."""
    async with await Peer.connect(address) as peer:
        peer.write(frame + peer.request(105, {"topic": "all"}))
        async with asyncio.timeout(1):
            received = b""
            while b'"opaque":1' not in received:
                part = await peer.reader.read(65_536)
                if not part:
                    return True
                received += part
    return False


async def sorted_frames(address: str, source: random.Random) -> tuple[list[bytes], list[bytes]]:
    """Random frames after which the port goes on reading, and others that it refuses. Those that announce more than
    they have, so that the port waits for the rest, are left out.
    """
    accepted: list[bytes] = []
    refused: list[bytes] = []
    candidates = iter([random_frame(source) for _ in range(1500)])

    async def sort() -> None:
        for frame in candidates:
            try:
                (refused if await is_refused(address, frame) else accepted).append(frame)
            except ConnectionError:
                refused.append(frame)
            except TimeoutError:
                continue

    await asyncio.gather(*(sort() for _ in range(50)))
    return accepted, refused


async def flood(address: str, seed: int, seconds: float) -> Sent:
    """Each connection sends frames that the port reads to the end, then one that it refuses, and reads until the port
    closes it. So every frame that is counted was read.
    """
    source, sent = random.Random(seed), Sent()
    accepted, refused = await sorted_frames(address, source)
    blobs = [b"".join([*source.choices(accepted, k=FRAMES), source.choice(refused)]) for _ in range(400)]
    deadline = time.monotonic() + seconds

    async def connections() -> None:
        while time.monotonic() < deadline:
            try:
                async with asyncio.timeout(20), await Peer.connect(address) as peer:
                    peer.write(source.choice(blobs))
                    while await peer.reader.read(65_536):
                        pass
            except OSError:
                # A reset is a refusal as well.
                pass
            except TimeoutError:
                sent.unanswered += 1
                continue
            sent.frames += FRAMES + 1
            sent.connections += 1

    await asyncio.gather(*(connections() for _ in range(8)))
    return sent


LIMITS = FrameLimits(frames.LARGEST_FRAME, frames.LARGEST_HEADER)


def read_by_protocol(source: random.Random) -> tuple[list[bytes], list[bytes]]:
    """The same two kinds of frames, sorted by the protocol's code. Those that announce less than they have are left out
    as well, because their rest would be read as the beginning of the next frame.
    """
    accepted: list[bytes] = []
    refused: list[bytes] = []
    following = framed(b'{"code":105,"opaque":1}')
    for frame in [random_frame(source) for _ in range(1500)]:
        alone, followed = (Connection(LIMITS).receive(data) for data in (frame, frame + following))
        if [type(event) for event in alone] == [PeerProtocolError]:
            refused.append(frame)
        elif [type(event) for event in followed] == [Request, Request] and len(alone) == 1:
            accepted.append(frame)
    return accepted, refused


def flood_protocol(seed: int, seconds: float, number: int) -> Sent:
    """Every frame is read, and the last one of each connection is refused: otherwise this fails."""
    source, sent = random.Random(seed), Sent()
    deadline = time.monotonic() + seconds
    while sent.frames < number and time.monotonic() < deadline:
        accepted, refused = read_by_protocol(source)
        for _ in range(200):
            data = b"".join([*source.choices(accepted, k=FRAMES), source.choice(refused)])
            began = time.thread_time()
            *read, last = Connection(LIMITS).receive(data)
            sent.longest_ms = max(sent.longest_ms, (time.thread_time() - began) * 1000)
            assert isinstance(last, PeerProtocolError), last
            assert len(read) == FRAMES, len(read)
            assert all(isinstance(event, Request) for event in read)
            sent.frames += FRAMES + 1
            sent.connections += 1
    return sent


if __name__ == "__main__":
    to, seed, seconds, *most = sys.argv[1:]
    if to == "protocol":
        done = flood_protocol(int(seed), float(seconds), int(most[0]))
    else:
        os.nice(5)
        done = asyncio.run(flood(to, int(seed), float(seconds)))
    print(json.dumps(asdict(done)))
