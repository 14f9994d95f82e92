"""Registrations' bodies, read without making everybody else wait.

A body of 10,000 topics takes some 30 ms of a processor to read (`benchmarks/body_reader.py`), nearly all of it inside
one call of the JSON parser, which holds the interpreter's lock: a thread would not help. So a large body goes to a
child process, one a worker, started with the first such body, and comes back in parts (`body_parts`) of about a
millisecond each.

Invariant: at most one body is with the child, and whoever asks next has its turn only when the whole answer to it is
in, or the child is gone. A caller that goes away in between changes nothing about that.
"""

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import zlib
from typing import Final, Self

from routebook.errors import NotReadyError
from routebook.protocol.request_bodies import RegistrationBody, read_registration_body
from routebook.remoting.body_parts import Assembly
from routebook.remoting.body_reading_process import COMMAND, LENGTH, Question

_log = logging.getLogger(__name__)

INLINE_BYTES: Final = 32 * 1024
"""Up to so many bytes of JSON, some 150 topics, are read here, in about the time that the way to the child and back
would take the loop. The slow lenient reader, which no known peer needs, takes 5 ms for them.
"""
RETIRE_ABOVE_BYTES: Final = 64 * 1024 * 1024
"""A child that holds more memory after a body is replaced: one extraordinary body shall not be paid for ever after. It
begins with 23 MB, and 10,000 topics leave it with 40.
"""
ANSWER_WITHIN_S: Final = 30.0
"""The largest legal body takes two seconds of a free processor. A child that takes longer hangs."""
_ATTEMPTS: Final = 2
_CLOSE_S: Final = 0.5
_STEP_BYTES: Final = 64 * 1024
"""Of a body, to the child: what does not fit into the socket's buffer is copied."""


class BodyReader:
    def __init__(self) -> None:
        self._child: _Child | None = None
        self._turn = asyncio.Lock()
        self._work: set[asyncio.Task[RegistrationBody] | asyncio.Task[None]] = set()
        self._closed = False

    async def read(
        self, body: bytes, *, version: int, now_ms: int, compressed: bool, body_crc32: int, max_inflated_bytes: int
    ) -> RegistrationBody:
        """As `read_registration_body`, with its errors. NotReadyError when there is no child that lives through it."""
        if _is_small(body, compressed=compressed):
            return read_registration_body(
                body,
                version=version,
                now_ms=now_ms,
                compressed=compressed,
                body_crc32=body_crc32,
                max_inflated_bytes=max_inflated_bytes,
            )
        question = Question(len(body), version, now_ms, compressed, body_crc32, max_inflated_bytes)
        await self._turn.acquire()
        if self._closed:
            self._turn.release()
            raise _stopping()
        # A task of its own holds the turn: this one may be cancelled, which leaves an answer under way.
        reading = asyncio.create_task(self._read_in_child(question, body))
        self._work.add(reading)
        reading.add_done_callback(self._end_turn)
        return await asyncio.shield(reading)

    async def close(self) -> None:
        """Whoever still waits for a body is told so."""
        self._closed = True
        if self._child is not None:
            self._child.kill()
        while self._work:
            await asyncio.wait(self._work)
        if self._child is not None:
            child, self._child = self._child, None
            await child.end()

    @property
    def process_id(self) -> int | None:
        """Of the child, while there is one."""
        return self._child.process_id if self._child else None

    @property
    def is_reading(self) -> bool:
        return self._turn.locked()

    def _end_turn(self, reading: asyncio.Task[RegistrationBody]) -> None:
        self._work.discard(reading)
        self._turn.release()
        if not reading.cancelled():
            reading.exception()  # Seen, even if nobody waits for it any more.

    async def _read_in_child(self, question: Question, body: bytes) -> RegistrationBody:
        for attempt in range(1, _ATTEMPTS + 1):
            if self._closed:
                break
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    return await self._ask(question, body)
            except (OSError, EOFError) as error:
                _log.warning(
                    "The process that reads large bodies ended, or hung, over one of %d bytes (attempt %d of %d): %r.",
                    len(body),
                    attempt,
                    _ATTEMPTS,
                    error,
                )
                await self._drop_child()
        if self._closed:
            raise _stopping()
        raise NotReadyError(
            f"The process that reads large bodies ended twice over this one of {len(body)} bytes.",
            advice="The worker's log and the kernel's (memory) say why; the next registration tries again.",
        )

    async def _ask(self, question: Question, body: bytes) -> RegistrationBody:
        if self._child is not None and self._child.has_ended:
            await self._drop_child()
        if self._child is None:
            self._child = await _Child.start()
        if self._closed:
            raise ConnectionAbortedError("closed while the process started")
        assembly = Assembly()
        try:
            return await self._child.ask(question, body, assembly)
        finally:
            if assembly.resident_bytes > RETIRE_ABOVE_BYTES:
                self._retire_child()

    def _retire_child(self) -> None:
        if self._child is not None:
            ending = asyncio.create_task(self._child.end())
            self._work.add(ending)
            ending.add_done_callback(self._work.discard)
            self._child = None

    async def _drop_child(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
            await child.end()


def _stopping() -> NotReadyError:
    return NotReadyError("This worker is stopping.", advice="Register with another one.")


def _is_small(body: bytes, *, compressed: bool) -> bool:
    if len(body) > INLINE_BYTES or not compressed:
        return len(body) <= INLINE_BYTES
    try:
        return len(zlib.decompressobj().decompress(body, INLINE_BYTES + 1)) <= INLINE_BYTES
    except zlib.error:
        return True


class _Child:
    def __init__(
        self, process: "subprocess.Popen[bytes]", source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._source = source
        self._sink = sink

    @classmethod
    async def start(cls) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            process = _start_process(theirs)
        return cls(process, *await asyncio.open_unix_connection(sock=ours))

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None or self._sink.is_closing()

    async def ask(self, question: Question, body: bytes, assembly: Assembly) -> RegistrationBody:
        await self._send(question.pack())
        rest = memoryview(body)
        while rest:
            await self._send(rest[:_STEP_BYTES])
            rest = rest[_STEP_BYTES:]
        said = None
        while said is None:
            length = LENGTH.unpack(await self._source.readexactly(LENGTH.size))[0]
            said = assembly.take(await self._source.readexactly(length))
            # Several parts may be here already, and reading them would not let go of the loop.
            await asyncio.sleep(0)
        return said

    async def _send(self, some: bytes | memoryview) -> None:
        if self._sink.is_closing():  # uvloop's RuntimeError would say less
            raise BrokenPipeError("the process has ended")
        self._sink.write(some)
        await self._sink.drain()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """It ends by itself when its input does; else it is killed."""
        self._sink.close()
        with contextlib.suppress(OSError):
            await self._sink.wait_closed()
        try:
            await asyncio.to_thread(self._process.wait, _CLOSE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            await asyncio.to_thread(self._process.wait)


def _start_process(connection: socket.socket) -> "subprocess.Popen[bytes]":
    """Not with the loop's own way: uvloop forks, which takes a worker of a gigabyte some 20 ms, and Popen does not."""
    return subprocess.Popen(
        [sys.executable, "-m", "routebook", COMMAND],
        stdin=connection.fileno(),
        stdout=connection.fileno(),
        # Ctrl-C goes to the worker, which drains before it ends this one.
        start_new_session=True,
    )
