"""Compares the store with this worker's replica every few minutes, and repairs the store.

Invariant: at the version that this replica has applied, the store has the same objects as the replica. If the store
lacks an object at that version, it was deleted without a change: by hand, by another program, or by an eviction.
Brokers do not notice, because a repeated registration is only a heartbeat. Each worker that starts later lacks the
object. The leader may be such a worker, so every worker compares.

One script writes missing objects back, and checks in the same step that the store is still at that version. An object
that differs is not changed in the store: the replica may be wrong, so it loads the table again. Decision 0053 gives the
reasons.

A round first compares counts, which find a deleted key at once, and then each queue entry. It is done in steps of about
a millisecond, with pauses in between that are ten times as long.

`StoreAlarms` checks the store's eviction policy, memory, role and disk regularly; the start of a worker checks them
only once. An operator may change the configuration of a running store, and a failover may lead to a server with another
configuration. An alarm is logged when it begins and when it ends; status, metrics and `routebook doctor` show it
meanwhile.
"""

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from routebook.errors import NotPrimaryError, NotReadyError, NotSeenYetError, StoreError
from routebook.model.broker import Instance, QueueData, parts_of
from routebook.model.names import Caller
from routebook.observability.metrics import Metrics, SelfCheckPart
from routebook.registry.status import StoreHealth
from routebook.replica.load import Position
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.checks import Finding, find_alarms, read_state
from routebook.store.connection.client import StoreClient
from routebook.store.identities import read_identities, restore_identities
from routebook.store.namespace import CountedOutcome, Namespace, Status
from routebook.store.reads import (
    GroupCounts,
    GroupImage,
    count_groups,
    list_broker_names,
    list_mapped,
    list_members,
    read_deadlines,
    read_groups,
    read_history_head,
    read_instances,
    read_kv,
    read_kv_namespaces,
    read_settings,
    scan_queues,
)
from routebook.store.recovery import repair_group, restore_kv, restore_settings

_log = logging.getLogger(__name__)

GROUPS_PER_STEP: Final = 64
INSTANCES_PER_STEP: Final = 200
ENTRIES_PER_REPAIR: Final = 250
ATTEMPTS: Final = 20
"""How often two states are read again because the table changed meanwhile. Then the next round decides."""
PAUSE_FACTOR: Final = 10
WAIT_MS: Final = 1_000
OFF_POLL_S: Final = 1.0
"""While the setting is 0, how often it is read again."""

_Item = TypeVar("_Item")
_NO_INSTANCES: Final[Mapping[str, Instance]] = {}


class SelfCheck:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        worker: str,
        *,
        metrics: Metrics,
        health: StoreHealth,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._caller = Caller(worker)
        self._metrics = metrics
        self._health = health
        self._suspected: set[str] = set()
        self._is_suspected = asyncio.Event()

    def suspect(self, broker: str) -> None:
        """The store refused a write because its state of this group is not the replica's: compares it at once."""
        self._suspected.add(broker)
        self._is_suspected.set()

    async def run(self) -> None:
        # Workers that start together do not check together.
        next_round = time.monotonic() + random.random() * self._interval_s()  # noqa: S311 - no secret
        while True:
            wait_s = max(next_round - time.monotonic(), 0) if self._interval_s() else OFF_POLL_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_suspected.wait(), min(wait_s, self._interval_s() or wait_s))
            try:
                await self._compare_suspected()
                if self._interval_s() and time.monotonic() >= next_round:
                    await self.check()
            except StoreError as error:
                _log.debug("The self-check waits for the store: %s", error)
            if time.monotonic() >= next_round:
                next_round = time.monotonic() + self._interval_s()

    def _interval_s(self) -> float:
        return self._live.current.self_check_interval_ms / 1000

    async def _compare_suspected(self) -> None:
        self._is_suspected.clear()
        while self._suspected:
            await self._compare_group(self._suspected.pop())

    async def check(self) -> None:
        """One round over everything."""
        if not self._is_comparable():
            return
        suspects = await self._count_all()
        suspects |= await self._compare_entries()
        for broker in sorted(suspects):
            await self._compare_group(broker)
        await self._compare_values()
        self._metrics.self_check()
        self._health.last_check = time.monotonic()

    def _is_comparable(self) -> bool:
        return self._replica.current and not self._replica.is_recovering

    # -- finding groups that may differ

    async def _count_all(self) -> set[str]:
        clusters: dict[str, set[str]] = defaultdict(set)
        for cluster, names in await list_broker_names(self._namespace):
            for name in names:
                clusters[name].add(cluster)
        table = self._replica.table
        mapped = set(await list_mapped(self._namespace))
        suspects = {*clusters, *mapped} - table.names()
        suspects |= {name for name in table.names() - mapped if table.mappings_of_broker(name)}
        for part in parts_of(sorted(table.names()), GROUPS_PER_STEP):
            counted = await self._paced(lambda part=part: count_groups(self._namespace, part))  # type: ignore[misc]
            suspects |= {name for name in part if not self._has_counts(name, counted[name], clusters[name])}
        return suspects | await self._compare_instances()

    def _has_counts(self, broker: str, found: GroupCounts, clusters: set[str]) -> bool:
        image = self._wanted_image(broker, [])
        group = image.group
        expected = GroupCounts(
            revision=group.revision if group else 0,
            fields=2 + (group.zone is not None) + group.acting_master + len(group.addresses) if group else 0,
            queues=len(self._replica.table.queues_of(broker)),
            mappings=len(image.mappings),
        )
        return found == expected and image.clusters == clusters

    async def _compare_instances(self) -> set[str]:
        table = self._replica.table
        suspects: set[str] = set()
        names = {*table.instances, *await list_members(self._namespace)}
        for part in parts_of(sorted(names), INSTANCES_PER_STEP):
            stored = await self._paced(lambda part=part: read_instances(self._namespace, part))  # type: ignore[misc]
            deadlines = await read_deadlines(self._namespace, part)
            for name in part:
                known = table.instances.get(name)
                either = known or stored[name]
                if either and (known != stored[name] or deadlines[name] is None):
                    suspects.add(either.broker)
        return suspects

    async def _compare_entries(self) -> set[str]:
        """Groups with an entry that the replica has otherwise. An entry that is missing shows in the counts."""
        suspects: set[str] = set()
        for broker in sorted(self._replica.table.names()):
            cursor, is_complete = "0", False
            while not is_complete:
                page = await self._paced(lambda at=cursor, name=broker: scan_queues(self._namespace, name, at))  # type: ignore[misc]
                known = self._replica.table.queues_of(broker)
                if any(_packed(known.get(topic)) != value for topic, value in page.entries.items()):
                    suspects.add(broker)
                    break
                cursor, is_complete = page.cursor, page.cursor == "0"
        return suspects

    async def _paced(self, read: Callable[[], Awaitable[_Item]]) -> _Item:
        began = time.monotonic()
        result = await read()
        await asyncio.sleep(PAUSE_FACTOR * (time.monotonic() - began))
        return result

    # -- one group

    async def _compare_group(self, broker: str) -> None:
        """Decides on one group, from states of the same version, and repairs it."""
        for _ in range(ATTEMPTS):
            if not self._is_comparable():
                return
            position = self._replica.position
            stored = (await read_groups(self._namespace, {broker: None}))[broker]
            table = self._replica.table
            instances = [one for one in table.instances.values() if one.broker == broker]
            names = [one.instance_name for one in instances]
            stored_instances = await read_instances(self._namespace, names)
            deadlines = await read_deadlines(self._namespace, names)
            is_mapped = broker in await list_mapped(self._namespace)
            if not await self._is_at(position):
                continue
            wanted = self._wanted_image(broker, None)
            has_instances = all(stored_instances[one.instance_name] == one for one in instances)
            has_deadlines = None not in deadlines.values()
            if stored == wanted and has_instances and has_deadlines and is_mapped == bool(wanted.mappings):
                return
            if await self._write_back_group(broker, wanted, stored, instances, position) is Status.UNCHANGED:
                self._load_again(f"group {broker}")
                return

    def _wanted_image(self, broker: str, topics: Sequence[str] | None) -> GroupImage:
        """A group is listed by the cluster that it belongs to, even if the replica was loaded without that list."""
        image = self._replica.table.image_of(broker, topics)
        if image.group is None or image.group.cluster in image.clusters:
            return image
        return replace(image, clusters=image.clusters | {image.group.cluster})

    async def _write_back_group(
        self, broker: str, wanted: GroupImage, stored: GroupImage, instances: Sequence[Instance], position: Position
    ) -> Status:
        """UNCHANGED: the store lacks nothing. STALE: it has moved on, so everything has to be compared again."""
        lacking = {topic: queue for topic, queue in wanted.queues.items() if queue and topic not in stored.queues}
        parts = [dict(part) for part in parts_of(lacking.items(), ENTRIES_PER_REPAIR)] or [{}]
        status, written, version = Status.UNCHANGED, 0, position.version
        for part in parts:
            outcome = await repair_group(
                self._namespace,
                wanted,
                broker,
                instances,
                part,
                position=f"{position.history}:{version}",
                caller=self._caller,
            )
            if outcome.status is Status.STALE:
                status = Status.STALE
                break
            if outcome.status is Status.DONE:
                status, version = Status.DONE, outcome.version
                written += outcome.count
        if written:
            self._report("group", written, f"group {broker}")
            await self._wait_for(version)
        return status

    # -- key-values, settings, identities

    async def _compare_values(self) -> None:
        for kv_namespace in sorted({*self._replica.table.kv, *await read_kv_namespaces(self._namespace)}):
            await self._compare_mapping(
                "key-values",
                f"key-values of {kv_namespace}",
                lambda name=kv_namespace: self._read_kv(name),  # type: ignore[misc]
                lambda name=kv_namespace: self._replica.table.kv.get(name),  # type: ignore[misc]
                lambda values, position, name=kv_namespace: restore_kv(  # type: ignore[misc]
                    self._namespace, name, values, caller=self._caller, position=position
                ),
            )
        await self._compare_mapping(
            "settings",
            "the settings",
            lambda: read_settings(self._namespace),
            lambda: self._replica.table.settings,
            lambda values, position: restore_settings(
                self._namespace,
                {key: (value, self._live.masked(key, value)) for key, value in values.items()},
                caller=self._caller,
                position=position,
            ),
        )
        await self._compare_mapping(
            "identities",
            "the identities",
            lambda: read_identities(self._namespace),
            lambda: self._replica.table.identities,
            lambda values, position: restore_identities(
                self._namespace, values, caller=self._caller, position=position
            ),
        )

    async def _read_kv(self, kv_namespace: str) -> Mapping[str, str] | None:
        """None if the store does not list the namespace."""
        listed = await read_kv_namespaces(self._namespace)
        return await read_kv(self._namespace, kv_namespace) if kv_namespace in listed else None

    async def _compare_mapping(
        self,
        part: SelfCheckPart,
        what: str,
        read: Callable[[], Awaitable[Mapping[str, str] | None]],
        known: Callable[[], Mapping[str, str] | None],
        restore: Callable[[Mapping[str, str], str], Awaitable[CountedOutcome]],
    ) -> None:
        for _ in range(ATTEMPTS):
            if not self._is_comparable():
                return
            position = self._replica.position
            stored = await self._paced(read)
            if not await self._is_at(position):
                continue
            wanted = known()
            if stored == wanted:
                return
            lacking = {key: value for key, value in (wanted or {}).items() if stored is None or key not in stored}
            if wanted is None or (not lacking and stored is not None):
                self._load_again(what)
                return
            some = dict(islice(lacking.items(), ENTRIES_PER_REPAIR))
            outcome = await restore(some, f"{position.history}:{position.version}")
            if outcome.count:
                self._report(part, outcome.count, what)
                await self._wait_for(outcome.version)

    # -- both states at one version

    async def _is_at(self, position: Position) -> bool:
        """Whether what was just read belongs to this position. If not, waits until the replica has caught up."""
        head = await read_history_head(self._namespace)
        if position.is_same_history(head) and head.version == position.version == self._replica.version:
            return True
        await self._wait_for(head.version)
        return False

    async def _wait_for(self, version: int) -> None:
        with suppress(NotSeenYetError, NotReadyError):
            await self._replica.wait_for(version, WAIT_MS)

    def _load_again(self, what: str) -> None:
        _log.warning("The self-check found that %s in the store differs from this worker's table.", what)
        self._metrics.self_check_difference("table")
        self._health.differences += 1
        self._replica.load_again()

    def _report(self, part: SelfCheckPart, written: int, what: str) -> None:
        _log.error(
            "The self-check found that the store had lost %s without a change: wrote back %d keys and fields. "
            "Something other than Routebook deletes keys of this namespace.",
            what,
            written,
        )
        self._metrics.self_check_difference(part)
        self._health.differences += 1
        self._health.last_difference = what


def _packed(queue: QueueData | None) -> bytes | None:
    return queue.pack().encode() if queue else None


class StoreAlarms:
    def __init__(self, client: StoreClient, live: LiveSettings, metrics: Metrics, health: StoreHealth) -> None:
        self._client = client
        self._live = live
        self._metrics = metrics
        self._health = health

    async def run(self) -> None:
        while True:
            try:
                self._update(find_alarms(await read_state(self._client)))
            except NotPrimaryError as error:
                self._update({"role": Finding("error", "role", error.message, error.advice)})
            except StoreError as error:
                # An alarm stays while the store is out of reach, which other parts of the worker report.
                _log.debug("The store cannot be checked: %s", error)
            await asyncio.sleep(self._live.current.store_check_interval_ms / 1000)

    def _update(self, found: dict[str, Finding]) -> None:
        for kind, finding in found.items():
            if kind not in self._health.alarms:
                _log.error("Store alarm (%s): %s %s", kind, finding.message, finding.advice)
        for kind in self._health.alarms:
            if kind not in found:
                _log.warning("The store alarm (%s) has ended.", kind)
        self._health.alarms = {kind: f"{finding.message} {finding.advice}" for kind, finding in found.items()}
        self._metrics.store_alarms(found.keys())
