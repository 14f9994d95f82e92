"""What a registration would change, worked out against the table, so that only that travels to the store.

The effect of a registration has its home in `lua/register_broker.lua`. Here is merely left out what cannot change
anything; the script refuses the rest when the group is no longer the one this was worked out against.
"""

import hashlib
from collections.abc import Iterable

from routebook.model.broker import MASTER_ID, BrokerGroup, Registration
from routebook.model.topic import QueueData
from routebook.replica.table import Table
from routebook.store.registration import QueueDifference


def registration_digest(said: Registration | str, *, effects: str) -> str:
    """Of everything that decides what a repeat would do: header fields and body (or a digest of them), and `effects`,
    the settings that have a say in it.
    """
    if isinstance(said, str):
        return hashlib.blake2b(f"{effects} {said}".encode(), digest_size=16).hexdigest()
    r = said
    header = (
        r.cluster,
        r.broker,
        r.broker_id,
        r.address,
        r.ha_address,
        r.zone,
        r.acting_master,
        r.data_version,
        sorted(r.table_keys) if r.table_keys is not None else None,
        r.filters,
        r.full,
        r.replace_topics,
        r.timeout_ms,
    )
    digest = hashlib.blake2b(f"{effects} {header!r}".encode(), digest_size=16)
    for topic in sorted(r.topics):
        digest.update(f"\n{topic}\t{r.topics[topic].pack()}".encode())
    for topic in sorted(r.mappings):
        digest.update(f"\n{topic}\t{r.mappings[topic]!r}".encode())
    return digest.hexdigest()


def may_publish(group: BrokerGroup | None, registration: Registration) -> bool:
    """Only the master and, of those that know acting masters, the smallest id put topics into the table."""
    if registration.broker_id == MASTER_ID:
        return True
    if registration.acting_master is None:
        return False
    others = (id_ for id_, address in (group.addresses.items() if group else ()) if address != registration.address)
    return all(registration.broker_id <= other for other in others)


def replaces_known_topics(table: Table, registration: Registration) -> bool:
    """Whether topics that the group has already will be put anew: an expectation, on which a staged table rests."""
    group = table.groups.get(registration.broker)
    instance = table.instances.get(registration.member)
    is_seated = group is not None and registration.broker_id in group.addresses
    said = registration.data_version
    return not is_seated or instance is None or said is None or instance.data_version != said


def work_out_difference(table: Table, registration: Registration, *, drops_missing: bool) -> QueueDifference:
    if not may_publish(table.groups.get(registration.broker), registration):
        return QueueDifference()
    known = table.queues_of(registration.broker)
    dropped = _dropped(known, registration) if drops_missing else set()
    new: dict[str, QueueData] = {}
    differing: dict[str, QueueData] = {}
    # A stand-in for the master publishes its topics read-only.
    stands_in = registration.broker_id != MASTER_ID and registration.acting_master
    for topic, queue in registration.topics.items():
        wanted = queue.without_write() if stands_in else queue
        before = known.get(topic)
        if before == wanted:
            continue
        # What goes by its key in the table and comes back by its name is new again.
        (new if before is None or topic in dropped else differing)[topic] = wanted
    own = table.mappings_of_broker(registration.broker)
    mappings = {
        topic: mapping
        for topic, mapping in registration.mappings.items()
        if mapping.bname != registration.broker or own.get(topic) != mapping
    }
    return QueueDifference(new, differing, sorted(dropped - registration.topics.keys()), mappings)


def _dropped(known: Iterable[str], registration: Registration) -> set[str]:
    """Known topics that the table does not name. It is the table's keys that count, not the topics' own names."""
    named = registration.topics.keys() if registration.table_keys is None else registration.table_keys
    return {topic for topic in known if topic not in named}
