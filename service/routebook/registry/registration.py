"""The rules of a registration that are decided in Python, before its script runs.

A registration of 10,000 topics usually changes a few of them. So the worker compares it with its own table and sends
only the difference. Which part decides what:

- This module decides which topics the registration adds, changes and drops (`work_out_difference`). Dropping the topics
  that a registration does not name, for `?replace=true` and `deleteTopicWithBrokerRegistration`, is decided here alone.
- `lua/register_broker.lua` decides everything about the seat: whether the registration is turned down or refused, the
  seats of the group afterwards, whether known topics are replaced, and which broker may publish topics.
- The rule for publishing is therefore in two places. Here it only saves sending topics that the script would ignore;
  the script decides. In Python, `may_publish` is the one home of the rule, also for imports of snapshots.

The script writes only if the history and the revision of the group are still those of the table that was compared. So
both parts decide about the same state; otherwise the script answers STALE and the worker starts over. That also holds
when the table changes between two steps of a large comparison (`LongWork`).
"""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from math import inf
from time import thread_time
from typing import Final, TypeVar

from routebook.errors import InvalidInputError, LimitError
from routebook.model.broker import MASTER_ID, BrokerGroup, DataVersion, QueueData, Registration, parts_of
from routebook.model.names import check_address, check_broker_id, check_name, check_names, check_text
from routebook.replica.table import Table
from routebook.settings import Settings
from routebook.store.registration import QueueDifference, TableLimits

STATE_VERSIONS_BEGIN_S: Final = 1_600_000_000
STATE_VERSIONS_AHEAD: Final = 86_400
"""A day, because clocks differ."""
LEAST_LIMIT_OF_STATE_VERSIONS: Final = 100_000_000
"""For a worker whose clock is far behind."""
STEP_TOPICS: Final = 2_000
"""Topics checked or compared in one step, which takes less than a millisecond."""

WEIGHT_OF_REFUSED_WORK: Final = 100.0
"""How often the time for a body that is refused counts. Real brokers send no such bodies, or a few after a mistake. A
peer that sends them on purpose gets half a percent of a processor, instead of half of it, to delay lookups.
"""

MAX_FILTERS: Final = 1_000
"""Filter servers of one broker. Brokers since 4.3 have none."""

_Result = TypeVar("_Result")


class LongWork:
    """Long computations on the event loop, in steps that let other work pass.

    Reading, checking and comparing a registration of 70,000 topics takes a tenth of a second. A thread would not help,
    because nearly all of it holds the interpreter's lock. So such work is written as a generator that yields about once
    a millisecond, and the event loop answers lookups between two steps.

    Only one computation at a time is beyond its first step. If sixteen registrations took their steps in turn, a lookup
    would wait for sixteen steps.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether work that takes more than one step has to wait."""
        return self._turn.locked()

    async def run(
        self, steps: Generator[None, None, _Result], *, charge: Callable[[float, float], None] | None = None
    ) -> _Result:
        """Returns the result of the generator. Work that never yields runs at once, whatever else is waiting. `charge`
        is called with the seconds of CPU that count, and the time.
        """
        spent, began, weight = 0.0, thread_time(), 1.0
        try:
            next(steps)
            spent, began = thread_time() - began, inf
            async with self._turn:
                while True:
                    await asyncio.sleep(0)
                    began = thread_time()
                    next(steps)
                    spent, began = spent + thread_time() - began, inf
        except StopIteration as end:
            result: _Result = end.value
            return result
        except Exception:
            weight = WEIGHT_OF_REFUSED_WORK
            raise
        finally:
            if charge is not None:
                charge(weight * (spent + max(thread_time() - began, 0)), time.monotonic())


def check_registration(registration: Registration, settings: Settings) -> None:
    """Refuses illegal values before anything is written. Apache's name server stops halfway and leaves partial data."""
    for _ in check_registration_in_steps(registration, settings):
        pass


def check_registration_in_steps(registration: Registration, settings: Settings) -> Generator[None, None, None]:
    check_name("cluster", registration.cluster)
    check_name("broker", registration.broker)
    check_broker_id(registration.broker_id)
    check_address("address", registration.address)
    check_text("zone", registration.zone or "")
    check_text("HA address", registration.ha_address)
    _check_timeout(registration.timeout_ms, settings)
    _check_state_version(registration.data_version)
    filters = registration.filters or ()
    if len(filters) > MAX_FILTERS:
        raise InvalidInputError("filter servers", f"{len(filters)} entries", f"at most {MAX_FILTERS}")
    for text in filters:
        check_text("filter server", text)
    _check_number_of_topics(registration, settings)
    for number, topics in enumerate(parts_of(registration.topics.items(), STEP_TOPICS)):
        if number:
            yield
        check_names("topic", [topic for topic, _ in topics])
        # Most topics share a few values, so each value is checked once.
        for topic, queues in dict(zip([id(queues) for _, queues in topics], topics, strict=True)).values():
            check_queue_numbers(topic, queues, settings)
    for number, mappings in enumerate(parts_of(registration.mappings.items(), STEP_TOPICS)):
        if number:
            yield
        for topic, mapping in mappings:
            check_name("topic", topic)
            check_name("host broker of a mapping", mapping.bname)
            check_text("scope of a mapping", mapping.scope)


def _check_state_version(version: DataVersion | None) -> None:
    """A seat is refused to all brokers with a smaller one, so an impossible one would keep out the real broker."""
    limit = largest_state_version(time.time())
    if version is not None and version.state_version > limit:
        raise InvalidInputError("stateVersion", version.state_version, f"at most {limit}")


def largest_state_version(now_s: float) -> int:
    """RocketMQ's controller and DLedger add one for each election. More than one election in each second since
    September 2020, before the first release of RocketMQ 5, is impossible. A controller that has lost its state may
    continue with the seconds since then, so a lower limit would refuse real brokers.
    """
    return max(int(now_s) - STATE_VERSIONS_BEGIN_S, LEAST_LIMIT_OF_STATE_VERSIONS) + STATE_VERSIONS_AHEAD


def _check_timeout(timeout_ms: int | None, settings: Settings) -> None:
    if timeout_ms is None:
        return
    fact, least, most = (
        f"The timeout is {timeout_ms} ms",
        settings.min_broker_timeout_ms,
        settings.max_broker_timeout_ms,
    )
    if timeout_ms < least:
        raise LimitError(fact, "min_broker_timeout_ms", least, is_least=True)
    if timeout_ms > most:
        raise LimitError(fact, "max_broker_timeout_ms", most)


def _check_number_of_topics(registration: Registration, settings: Settings) -> None:
    limit = settings.max_topics_per_broker
    for what, count in (("topics", len(registration.topics)), ("mappings", len(registration.mappings))):
        if limit and count > limit:
            raise LimitError(f"The registration has {count} {what}", "max_topics_per_broker", limit)


def check_queue_numbers(topic: str, queues: QueueData, settings: Settings) -> None:
    limit = settings.max_queues_per_topic
    count = max(queues.read_queues, queues.write_queues)
    if count > limit:
        raise LimitError(f"Topic {topic!r} has {count} queues", "max_queues_per_topic", limit)


def table_limits(settings: Settings) -> TableLimits:
    return TableLimits(
        clusters=settings.max_clusters,
        groups=settings.max_groups,
        brokers=settings.max_brokers,
        seats_per_group=settings.max_seats_per_group,
        topics_per_broker=settings.max_topics_per_broker,
    )


def limit_error(exceeded: str, registration: Registration, settings: Settings) -> LimitError:
    """`exceeded`: the setting of the limit that the script named."""
    facts = {
        "max_clusters": f"Cluster {registration.cluster!r} is new",
        "max_groups": f"Group {registration.broker!r} is new",
        "max_brokers": f"Broker {registration.address!r} is new",
        "max_seats_per_group": f"Id {registration.broker_id} of group {registration.broker!r} is new",
        "max_topics_per_broker": f"Group {registration.broker!r} would get more topics or mappings",
    }
    return LimitError(facts[exceeded], exceeded, getattr(settings, exceeded))


def may_publish(group: BrokerGroup | None, broker_id: int, address: str, *, acting_master: bool | None) -> bool:
    """Whether topics of this broker enter the table: those of the master, and those of the smallest id of a group whose
    brokers know acting masters (`acting_master` is None for an old broker, which does not).
    """
    if broker_id == MASTER_ID:
        return True
    if acting_master is None:
        return False
    seats = group.addresses.items() if group else ()
    return all(broker_id <= other_id for other_id, other_address in seats if other_address != address)


def is_repeatable(registration: Registration) -> bool:
    """Whether an unchanged group means that repeating the registration changes nothing. Mappings hosted by another
    broker are not part of the group, and without a data version they are written again each time.
    """
    return registration.data_version is not None or all(
        mapping.bname == registration.broker for mapping in registration.mappings.values()
    )


def replaces_known_topics(table: Table, registration: Registration) -> bool:
    """Whether topics that the group already has are expected to be replaced. A staged table is prepared accordingly;
    the script checks the expectation.
    """
    group = table.groups.get(registration.broker)
    instance = table.instances.get(registration.instance_name)
    is_seated = group is not None and registration.broker_id in group.addresses
    version = registration.data_version
    return not is_seated or instance is None or version is None or instance.data_version != version


def work_out_difference(
    table: Table, registration: Registration, *, drops_missing: bool
) -> Generator[None, None, QueueDifference]:
    """What the registration changes in the queues of its group. With `drops_missing`, topics that it does not name are
    removed.
    """
    broker = registration.broker
    acting = registration.acting_master
    if not may_publish(table.groups.get(broker), registration.broker_id, registration.address, acting_master=acting):
        return QueueDifference()
    known = table.queues_of(broker)
    dropped = _dropped(known, registration) if drops_missing else set()
    new: dict[str, QueueData] = {}
    differing: dict[str, QueueData] = {}
    is_acting_master = registration.broker_id != MASTER_ID and acting
    # All topics share a few values, so each value is converted once and each pair of values compared once. The entries
    # keep the values alive, so that no id is used again.
    read_only: dict[int, QueueData] = {}
    equal: dict[tuple[int, int], QueueData] = {}
    for number, topics in enumerate(parts_of(registration.topics.items(), STEP_TOPICS)):
        if number:
            yield
        if not known and not is_acting_master:
            new.update(topics)
            continue
        for topic, queue in topics:
            wanted = queue
            if is_acting_master:
                wanted = read_only.get(id(queue)) or read_only.setdefault(id(queue), queue.without_write())
            before = known.get(topic)
            if before is not None:
                pair = id(before), id(wanted)
                if pair in equal or before == wanted:
                    equal[pair] = before
                    continue
            # A topic can be dropped by its key in the table and come back under its own name: then it is new.
            (new if before is None or topic in dropped else differing)[topic] = wanted
    known_mappings = table.mappings_of_broker(broker)
    mappings = {
        topic: mapping
        for topic, mapping in registration.mappings.items()
        if mapping.bname != broker or known_mappings.get(topic) != mapping
    }
    unchanged = len(known) - len(differing) - len(dropped)
    return QueueDifference(new, differing, sorted(dropped - registration.topics.keys()), mappings, unchanged, known)


def _dropped(known: Iterable[str], registration: Registration) -> set[str]:
    """Known topics that the registration does not name. The keys of its table count, not the topics' own names."""
    named = registration.topics.keys() if registration.table_keys is None else registration.table_keys
    return {topic for topic in known if topic not in named}
