"""Long computations on the event loop, in steps that let other work pass.

To read, check and compare a registration of 70,000 topics takes a tenth of a second. A thread would not help, because
nearly all of it holds the interpreter's lock. So such work is written as a generator that yields about once a
millisecond, and the event loop answers lookups between two steps.

Only one computation at a time is beyond its first step. If sixteen registrations took their steps in turn, a lookup
would wait for sixteen steps.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LongWork:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, steps: Generator[None, None, _Result]) -> _Result:
        """The result of the generator. Work that never yields is done at once, however many computations wait."""
        try:
            next(steps)
            async with self._turn:
                while True:
                    await asyncio.sleep(0)
                    next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def parts_of(items: Iterable[_Item], length: int) -> Iterator[tuple[_Item, ...]]:
    """Cuts what one step would take too long for."""
    iterator = iter(items)
    while part := tuple(islice(iterator, length)):
        yield part
