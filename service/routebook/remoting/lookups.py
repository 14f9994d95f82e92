"""GET_ROUTEINFO_BY_TOPIC (105), the hot path: answered in the step that received it, from routes encoded beforehand.

There are two ways to read a lookup, and one to answer it. `Lookups.find` takes a parsed request and knows all cases.
`Lookups.answer_chunk` takes lookups that match their connection's template, straight from the received bytes to the
bytes of the answers. It answers those whose route is in the cache that `find` would use, and leaves the first other
one, and all behind it, to the parser and `find`. So both give the same bytes.

There is one object for the whole port. With hundreds of connections that take turns, data of a single connection is not
in the processor's cache when it is needed, and fetching it costs more than the work.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Final

from routebook.errors import NotFoundError, RoutebookError
from routebook.model.broker import MASTER_ID, BrokerGroup, TopicRoute
from routebook.observability.metrics import Metrics
from routebook.protocol.answer_bodies import Dialect, encode_route, route_dialect
from routebook.protocol.frame import ONEWAY_FLAG, V4_9_4, Request, ResponseCode
from routebook.protocol.headers import read_boolean, read_text
from routebook.protocol.lookup_template import Lookup, LookupTemplate
from routebook.registry.reading import Reading
from routebook.remoting.permissions import Permissions
from routebook.remoting.requests import Reply, reply_to_error
from routebook.settings import LiveSettings, Settings

WARMING_UP: Final = "name server not ready"
FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
BATCH_BYTES: Final = 64 << 10
"""Answers to one chunk are written together up to this size. Then it is checked whether the peer reads them."""
MAX_CACHED_TEMPLATES: Final = 256
"""More than `lookup_template` keeps, because connections keep templates that it has dropped."""

CachedRoute = Callable[[str], bytes | None]


class Lookups:
    def __init__(
        self,
        registry: Reading,
        live: LiveSettings,
        metrics: Metrics,
        encode_success_head: Callable[[bytes, int], bytes | None],
        permissions: Permissions,
    ) -> None:
        """`encode_success_head` is that of `protocol.connection`."""
        self._registry = registry
        self._live = live
        self._metrics = metrics
        self._encode_head = encode_success_head
        self._permissions = permissions
        self._cached_routes: dict[LookupTemplate, CachedRoute] = {}
        self._started = time.monotonic()
        self._may_warm_up = False
        self._is_guarded = False
        """Whether lookups have to be signed."""
        self._is_ordinary = True
        """Whether lookups need no other check than the template."""
        live.subscribe(self._settings_changed)
        self._settings_changed(live.current)
        self.sample_due = False
        """Whether the next chunk of lookups is to be timed."""
        # Plain numbers, because a metric's own counter takes a lock each time. They are read when metrics are exposed.
        self.found = 0
        self.not_found = 0
        self.not_ready = 0

    def answer_chunk(self, template: LookupTemplate, chunk: bytes, at: int, answers: list[bytes]) -> int:
        """Appends the answers to the lookups from `at` on. Returns where the first lookup without an answer begins."""
        start = perf_counter() if self.sample_due else 0.0
        cached_route = self._cached_routes.get(template) or self._cached_routes_for(template)
        lookups = template.read(chunk, at) if self._is_ordinary else self._allowed_lookups(template, chunk, at)
        encode_head, begin, found, size = self._encode_head, at, 0, 0
        for topic, opaque, end in lookups:
            body = cached_route(topic)
            if body is None or (head := encode_head(opaque, len(body))) is None:
                break
            answers += (head, body)
            at = end
            found += 1
            size += len(body)
            if size >= BATCH_BYTES:
                break
        self.found += found
        if start and at != begin:
            self.sample_due = False
            self._metrics.lookup_time("remoting", perf_counter() - start)
        return at

    def _allowed_lookups(self, template: LookupTemplate, chunk: bytes, at: int) -> list[Lookup]:
        """The lookups before the first one that is not known to be allowed. That one is checked when it is parsed."""
        if self._may_warm_up or template.read_signed is None:
            return []
        allowed: list[Lookup] = []
        verdicts = self._permissions.verdicts(template)
        for topic, opaque, end, signature in template.read_signed(chunk, at):
            if (topic, signature) not in verdicts and not self._permissions.allows_lookup(template, topic, signature):
                break
            allowed.append((topic, opaque, end))
        return allowed

    def find(self, request: Request) -> bytes | Reply | None:
        """The body of a success, or another answer; None if another name server has to be asked."""
        if self._may_warm_up:
            if self._is_warming_up():
                self.not_ready += 1
                return Reply(ResponseCode.SYSTEM_ERROR, remark=WARMING_UP)
            self._may_warm_up = False
            self._is_ordinary = not self._is_guarded
        ext = request.ext
        topic = ext.get("topic") if ext else None
        try:
            if ext is None or topic is None:
                self.not_found += 1
                return not_found(None)
            if "__ZONE_MODE" in ext and (zone := wanted_zone(ext)):
                body = encode_route(filter_by_zone(self._registry.find_topic(topic), zone), Dialect.PLAIN)
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

    async def ask_upstream(self, request: Request) -> bytes | Reply:
        """Only a cluster test has other name servers to ask."""
        return not_found(read_text(request.ext, "topic"))

    async def close(self) -> None:
        """Only a cluster test has connections to close."""

    def _cache_for(self, example: Request) -> CachedRoute | None:
        """The cache from which `find` would answer requests that differ from the example by the topic alone. None if it
        encodes each answer.
        """
        if example.version < V4_9_4 or "__ZONE_MODE" in (example.ext or {}):
            return None
        return self._registry.kept_route

    def _cached_routes_for(self, template: LookupTemplate) -> CachedRoute:
        cached = None if template.example.flag & ONEWAY_FLAG else self._cache_for(template.example)
        if len(self._cached_routes) >= MAX_CACHED_TEMPLATES:
            self._cached_routes.clear()
        self._cached_routes[template] = cached or _never_cached
        return self._cached_routes[template]

    def _settings_changed(self, settings: Settings) -> None:
        self._may_warm_up = settings.need_wait_for_service
        self._is_guarded = settings.remoting_access == "signed"
        self._is_ordinary = not self._may_warm_up and not self._is_guarded

    def _is_warming_up(self) -> bool:
        return time.monotonic() - self._started < self._live.current.wait_seconds_for_service


def _never_cached(topic: str) -> None:
    del topic


def _dialect_of(request: Request) -> Dialect:
    only_standard = read_boolean(request.ext, "acceptStandardJsonOnly")
    return route_dialect(request.version, accept_standard_json_only=only_standard)


def not_found(topic: str | None) -> Reply:
    """RocketMQ names a missing topic `null`."""
    remark = f"No topic route info in name server for the topic: {'null' if topic is None else topic}\n{FAQ}"
    return Reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)


# -- zones


def wanted_zone(ext: Mapping[str, str]) -> str | None:
    """The zone of the client. None if the answer is not to be filtered."""
    name = ext.get("__ZONE_NAME")
    return name if name and name.strip() and read_boolean(ext, "__ZONE_MODE") else None


def filter_by_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """As RocketMQ's hook for zones: a group without a master remains, whatever its zone, and so do queues without a
    group.
    """
    removed = [group for group in route.groups if not _remains(group, zone)]
    names = {group.name for group in removed}
    addresses = {address for group in removed for address in group.addresses.values()}
    return replace(
        route,
        groups=tuple(group for group in route.groups if group.name not in names),
        queues={name: queue for name, queue in route.queues.items() if name not in names},
        filters={address: found for address, found in route.filters.items() if address not in addresses},
    )


def _remains(group: BrokerGroup, zone: str) -> bool:
    return MASTER_ID not in group.addresses or (group.zone or "").casefold() == zone.casefold()
