"""A broker as a name server knows it, in a process of its own that can be killed: it listens at its address, keeps one
connection to its name server, and registers over it at every period and never in between.

    python -m tests.faults.broker_process NAME_SERVER PERIOD_SECONDS NAME [NAME …]

Several names are a container: all register over the one connection. Writes a line with its address for each when all
have registered for the first time.
"""

import asyncio
import json
import struct
import sys
import time
from typing import Final

from tests.protocol.plain_frames import framed

RETRY_S: Final = 0.1


def registration(name: str, address: str) -> bytes:
    ext = {
        "clusterName": "east",
        "brokerName": name,
        "brokerAddr": address,
        "brokerId": "0",
        "haServerAddr": address,
        "enableActingMaster": "false",
    }
    topics = {
        topic: {"topicName": topic, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
        for topic in ("orders", f"own-{name}")
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": topics}}
    header = {"code": 103, "flag": 0, "language": "JAVA", "opaque": 1, "version": 479, "extFields": ext}
    return framed(json.dumps(header).encode(), json.dumps(body).encode())


async def register_all(brokers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether all were answered with success."""
    for name, address in brokers.items():
        writer.write(registration(name, address))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(length)
        if json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])["code"] != 0:
            return False
    return True


async def serve(name_server: str, period_s: float, brokers: dict[str, str]) -> None:
    host, _, port = name_server.rpartition(":")
    due, said = 0.0, False
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            while True:
                await asyncio.sleep(max(due - time.monotonic(), 0))
                due = time.monotonic() + period_s
                if await register_all(brokers, reader, writer) and not said:
                    said = True
                    print(*brokers.values(), flush=True)
                # A peer that closes is noticed at once; the broker connects anew and waits for its period.
                pause = asyncio.create_task(asyncio.sleep(due - time.monotonic()))
                gone = asyncio.create_task(reader.read(1))
                await asyncio.wait({pause, gone}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                if gone.done():
                    writer.close()
                    break
                gone.cancel()
                await asyncio.wait({gone})
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(RETRY_S)


async def main() -> None:
    name_server, period_s, *names = sys.argv[1:]
    listeners = [await asyncio.start_server(lambda _, writer: writer.close(), "127.0.4.1", 0) for _ in names]
    addresses = [f"127.0.4.1:{one.sockets[0].getsockname()[1]}" for one in listeners]
    await serve(name_server, float(period_s), dict(zip(names, addresses, strict=True)))


if __name__ == "__main__":
    asyncio.run(main())
