"""The minimal Python name server: it splits the stream into frames by their first four bytes and answers each with the
same prepared bytes. It reads no header, looks nothing up and checks no limit. It runs on uvloop, like the worker.

    python echo.py < ANSWER       prints its port and serves until it is terminated
"""

import asyncio
import sys
from typing import cast

import uvloop

LENGTH_BYTES = 4


class Echo(asyncio.Protocol):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        at, frames, size = 0, 0, len(data)
        while size - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
            if end > size:
                break
            at = end
            frames += 1
        self._unread = data[at:]
        if frames == 1:
            self._transport.write(self._answer)
        else:
            self._transport.writelines([self._answer] * frames)


async def serve(answer: bytes) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Echo(answer), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.stdin.buffer.read()))
