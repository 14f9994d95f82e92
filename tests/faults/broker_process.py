"""A broker as a name server sees it, in a process of its own that can be killed: it listens at its address, keeps one
connection to its name server, and registers over it once in each period.

    python -m tests.faults.broker_process NAME_SERVER PERIOD_SECONDS NAME [NAME …]

With several names it is a broker container: all of them register over one connection. When all have registered for the
first time, it prints one line with their addresses.
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
    """Returns whether all registrations succeeded."""
    for name, address in brokers.items():
        writer.write(registration(name, address))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(length)
        if json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])["code"] != 0:
            return False
    return True


async def serve(name_server: str, period_s: float, brokers: dict[str, str]) -> None:
    host, _, port = name_server.rpartition(":")
    due, has_printed = 0.0, False
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            while True:
                await asyncio.sleep(max(due - time.monotonic(), 0))
                due = time.monotonic() + period_s
                if await register_all(brokers, reader, writer) and not has_printed:
                    has_printed = True
                    print(*brokers.values(), flush=True)
                # If the name server closes the connection, connect again at once, but register at the next period.
                pause = asyncio.create_task(asyncio.sleep(due - time.monotonic()))
                closed = asyncio.create_task(reader.read(1))
                await asyncio.wait({pause, closed}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                if closed.done():
                    writer.close()
                    break
                closed.cancel()
                await asyncio.wait({closed})
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(RETRY_S)


async def main() -> None:
    name_server, period_s, *names = sys.argv[1:]
    listeners = [await asyncio.start_server(lambda _, writer: writer.close(), "127.0.4.1", 0) for _ in names]
    addresses = [f"127.0.4.1:{listener.sockets[0].getsockname()[1]}" for listener in listeners]
    await serve(name_server, float(period_s), dict(zip(names, addresses, strict=True)))


if __name__ == "__main__":
    asyncio.run(main())
