"""Lookups without detours: from the bytes of a chunk to the bytes of its answers, with no request made in between.

Invariant: what is answered here would get the same bytes on the long way (`connection`, `lookups`). Taken are lookups
from the beginning of a chunk, as long as each is written in the form that the connection has learnt of its peer, and
its route is kept encoded. The first other one goes the long way, with all behind it.

One for the whole port: with hundreds of connections that take turns, what each has of its own is not in the processor's
cache when it is needed, and fetching it costs more than the work.
"""

from collections.abc import Callable
from typing import Final, Protocol

from routebook.remoting_api.lookups import Lookups
from routebook.wire.codes import ONEWAY_FLAG
from routebook.wire.lookup_form import LookupTemplate

BATCH_BYTES: Final = 64 << 10
"""Answers to one chunk of requests leave together up to this; then it is looked whether the peer takes them."""
MAX_FORMS: Final = 256
"""`lookup_form` keeps fewer; these are those of connections that it has forgotten, too."""


class Answering(Protocol):
    def answer(self, form: LookupTemplate, chunk: bytes, at: int, answers: list[bytes]) -> int:
        """Adds answers to what stands there from `at` on, and says up to where it did; `at` when it did nothing."""


class ShortWay:
    def __init__(self, lookups: Lookups, head: Callable[[bytes, int], bytes | None]) -> None:
        """`head`: of an answer, by the digits of its opaque and the length of its body."""
        self._lookups = lookups
        self._head = head
        self._find: dict[LookupTemplate, Callable[[str], bytes | None]] = {}

    def answer(self, form: LookupTemplate, chunk: bytes, at: int, answers: list[bytes]) -> int:
        """Adds answers to what stands there from `at` on, and says up to where it did; `at` when it did nothing."""
        find = self._find.get(form) or self._find_of(form)
        if self._lookups.may_refuse:
            return at
        head, found, size = self._head, 0, 0
        for topic, opaque, end in form.read(chunk, at):
            body = find(topic)
            if body is None or (begin := head(opaque, len(body))) is None:
                break
            answers += (begin, body)
            at = end
            found += 1
            size += len(body)
            if size >= BATCH_BYTES:
                break
        self._lookups.found += found
        return at

    def _find_of(self, form: LookupTemplate) -> Callable[[str], bytes | None]:
        find = None if form.example.flag & ONEWAY_FLAG else self._lookups.find_kept(form.example)
        if len(self._find) >= MAX_FORMS:
            self._find.clear()
        self._find[form] = find or _find_nothing
        return self._find[form]


def _find_nothing(topic: str) -> None:
    """All lookups of that form go the long way."""
    del topic
