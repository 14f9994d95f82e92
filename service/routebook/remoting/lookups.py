"""Routes for a client that wants brokers of its own zone: a hook of the reference, behind the lookup.

GET_ROUTEINFO_BY_TOPIC (105): the hot path. Answered in the step that received it, from bytes encoded beforehand.

No store, no `await`, no JSON encoder: a lookup costs two dictionary reads beside cutting and decoding its frame.

Lookups without detours: from the bytes of a chunk to the bytes of its answers, with no request made in between.

Invariant: what is answered here would get the same bytes on the long way (`connection`, `lookups`). Taken are lookups
from the beginning of a chunk, as long as each is written in the form that the connection has learnt of its peer, and
its route is kept encoded. The first other one goes the long way, with all behind it.

One for the whole port: with hundreds of connections that take turns, what each has of its own is not in the processor's
cache when it is needed, and fetching it costs more than the work.

The short way, with the time it takes: in its place for one chunk of lookups, now and then.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Final, Protocol

from routebook.errors import NotFoundError, RoutebookError
from routebook.model.broker import MASTER_ID, BrokerGroup, TopicRoute
from routebook.protocol.answer_bodies import Dialect, encode_route, route_dialect
from routebook.protocol.command import ONEWAY_FLAG, V4_9_4, Request, ResponseCode
from routebook.protocol.headers import read_boolean, read_text
from routebook.protocol.lookup_template import LookupTemplate
from routebook.registry.reading import Reading
from routebook.remoting.reply import Reply, reply_to_error
from routebook.settings import LiveSettings, Settings


def zone_of(ext: Mapping[str, str]) -> str | None:
    """The zone asked for, None when the answer shall not be filtered."""
    name = ext.get("__ZONE_NAME")
    return name if name and name.strip() and read_boolean(ext, "__ZONE_MODE") else None


def filtered_by_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """A group without a master stays whatever its zone, on purpose; queues without a group stay, too."""
    gone = [group for group in route.groups if not _stays(group, zone)]
    names = {group.name for group in gone}
    addresses = {address for group in gone for address in group.addresses.values()}
    return replace(
        route,
        groups=tuple(group for group in route.groups if group.name not in names),
        queues={name: queue for name, queue in route.queues.items() if name not in names},
        filters={address: found for address, found in route.filters.items() if address not in addresses},
    )


def _stays(group: BrokerGroup, zone: str) -> bool:
    return MASTER_ID not in group.addresses or (group.zone or "").casefold() == zone.casefold()


WARMING_UP: Final = "name server not ready"
FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Lookups:
    def __init__(self, registry: Reading, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live
        self._started = time.monotonic()
        self.may_refuse = False
        """Also what it could find."""
        live.subscribe(self._settings_changed)
        self._settings_changed(live.current)
        # Plain numbers: a metric's own counter takes a lock each time. The worker hands them on when it is asked.
        self.found = 0
        self.not_found = 0
        self.not_ready = 0

    def find(self, request: Request) -> bytes | Reply | None:
        """The body of a success, or another answer; None when it has to be asked for elsewhere."""
        if self.may_refuse and self._is_warming_up():
            self.not_ready += 1
            return Reply(ResponseCode.SYSTEM_ERROR, remark=WARMING_UP)
        ext = request.ext
        topic = ext.get("topic") if ext else None
        try:
            if ext is None or topic is None:
                self.not_found += 1
                return not_found(None)
            if "__ZONE_MODE" in ext and (zone := zone_of(ext)):
                body = encode_route(filtered_by_zone(self._registry.find_topic(topic), zone), Dialect.PLAIN)
            elif request.version >= V4_9_4 or _dialect_of(request) is Dialect.STANDARD:
                body = self._registry.find_route(topic)
            else:
                body = self._registry.find_plain_route(topic)
        except NotFoundError:
            self.not_found += 1
            return not_found(topic)
        except RoutebookError as error:
            self.not_ready += 1
            return reply_to_error(error)
        self.found += 1
        return body

    def find_kept(self, example: Request) -> Callable[[str], bytes | None] | None:
        """For requests that differ from the example by the topic alone: what `find` answers, as far as it is encoded
        already. None: ask `find` of each.
        """
        if example.version < V4_9_4 or "__ZONE_MODE" in (example.ext or {}):
            return None
        return self._registry.kept_route

    async def find_elsewhere(self, request: Request) -> bytes | Reply:
        """There is no elsewhere, but in a cluster test."""
        return not_found(read_text(request.ext, "topic"))

    async def close(self) -> None:
        """Nothing to let go of, but in a cluster test."""

    def _settings_changed(self, settings: Settings) -> None:
        self.may_refuse = settings.need_wait_for_service

    def _is_warming_up(self) -> bool:
        return time.monotonic() - self._started < self._live.current.wait_seconds_for_service


def _dialect_of(request: Request) -> Dialect:
    only_standard = read_boolean(request.ext, "acceptStandardJsonOnly")
    return route_dialect(request.version, accept_standard_json_only=only_standard)


def not_found(topic: str | None) -> Reply:
    """Who names no topic asks, in Java's words, for `null`."""
    said = "null" if topic is None else topic
    remark = f"No topic route info in name server for the topic: {said}\n{FAQ}"
    return Reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)


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


class TimedOnce:
    def __init__(self, answering: Answering, told: Callable[[float], None]) -> None:
        """`told` the seconds of the first chunk of which something was answered; it takes this away again."""
        self._answering = answering
        self._told = told

    def answer(self, form: LookupTemplate, chunk: bytes, at: int, answers: list[bytes]) -> int:
        began = perf_counter()
        end = self._answering.answer(form, chunk, at, answers)
        if end != at:
            self._told(perf_counter() - began)
        return end
