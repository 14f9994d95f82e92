"""GET_ROUTEINFO_BY_TOPIC (105): the hot path. Answered in the step that received it, from bytes encoded beforehand.

No store, no `await`, no JSON encoder: a lookup costs two dictionary reads beside cutting and decoding its frame.
"""

import time
from collections.abc import Callable
from typing import Final

from routebook.errors import NotFoundError, RoutebookError
from routebook.registry.reading import Reading
from routebook.remoting_api.reply import Reply, reply_to_error
from routebook.remoting_api.zone_filter import filtered_by_zone, zone_of
from routebook.settings import LiveSettings, Settings
from routebook.wire.bodies.answers import encode_route
from routebook.wire.bodies.dialect import Dialect, route_dialect
from routebook.wire.codes import V4_9_4, ResponseCode
from routebook.wire.command import Request
from routebook.wire.fields import read_boolean, read_text

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
