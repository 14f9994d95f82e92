"""One operation asked of the store and of the reference: both tell in the same words, so answers can be compared."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from routebook.model.broker import MinBrokerChange, Registration, RegistrationResult
from routebook.store.administration import delete_kv, delete_topic, put_kv, register_topic, set_write_permission
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import heartbeat_broker
from routebook.store.removal import Departure, unregister_brokers
from tests.properties import operations as op
from tests.properties.plain_worker import CALLER
from tests.reference.registry import Answer, ReferenceRegistry, Unregistration

STALE_INCARNATION = "0" * 16
Told = object


class Worker(Protocol):
    """Whoever turns a registration into scripts."""

    notices: list[MinBrokerChange]
    """What brokers would be told."""

    async def register(self, said: Registration) -> RegistrationResult: ...

    async def set_deleting(self, *, on: bool) -> None: ...


def told_by_worker(result: RegistrationResult) -> Told:
    outcome = "accepted" if result.status in {"changed", "unchanged"} else result.status
    return outcome, result.master_address, result.master_ha_address


def told_by_reference(answer: Answer) -> Told:
    return answer.outcome, answer.master_address, answer.master_ha_address


async def ask_store(namespace: Namespace, worker: Worker, operation: op.Operation) -> Told:
    if isinstance(operation, op.Register):
        return told_by_worker(await worker.register(operation.said))
    if isinstance(operation, op.SetDeletingOption):
        await worker.set_deleting(on=operation.on)
        return None
    if isinstance(operation, op.Unregister):
        return await _store_unregister(namespace, worker, operation)
    return await _OF_STORE[type(operation)](namespace, operation)


def ask_reference(reference: ReferenceRegistry, operation: op.Operation, *, incarnation: str = "") -> Told:
    if isinstance(operation, op.Register):
        return told_by_reference(reference.register(operation.said, incarnation))
    return _OF_REFERENCE[type(operation)](reference, operation)


async def _store_heartbeat(namespace: Namespace, asked: op.Heartbeat) -> Told:
    reply = await heartbeat_broker(namespace, asked.cluster, "whatever", 0, caller=CALLER, address=asked.address)
    return reply.status is Status.UNCHANGED, reply.data_version


def _heartbeat(reference: ReferenceRegistry, asked: op.Heartbeat) -> Told:
    if not reference.heartbeat(asked.cluster, asked.address):
        return False, None
    return True, reference.instances[asked.cluster, asked.address].data_version


async def _store_unregister(namespace: Namespace, worker: Worker, asked: op.Unregister) -> Told:
    of = STALE_INCARNATION if asked.stale else ""
    departures = [(Departure(cluster, broker, 0, address, of), CALLER) for cluster, broker, address in asked.departures]
    reply = await unregister_brokers(namespace, departures)
    worker.notices.extend(reply.notices)
    assert len(reply.statuses) == len(departures)
    return [status is Status.STALE for status in reply.statuses] if asked.stale else None


def _unregister(reference: ReferenceRegistry, asked: op.Unregister) -> Told:
    """Of what is not stale only the effect is compared: "was it there" is no notion of RocketMQ's."""
    of = STALE_INCARNATION if asked.stale else None
    done = reference.unregister([Unregistration(c, address, broker, of) for c, broker, address in asked.departures])
    return [not was_carried_out for was_carried_out in done] if asked.stale else None


async def _store_register_topic(namespace: Namespace, asked: op.RegisterTopic) -> Told:
    return (await register_topic(namespace, asked.topic, dict(asked.queues), caller=CALLER)).status is Status.UNKNOWN


def _register_topic(reference: ReferenceRegistry, asked: op.RegisterTopic) -> Told:
    return len(reference.register_topic(asked.topic, dict(asked.queues))) < len(asked.queues)


async def _store_delete_topic(namespace: Namespace, asked: op.DeleteTopic) -> Told:
    return (await delete_topic(namespace, asked.topic, caller=CALLER, cluster=asked.cluster or "")).count


def _delete_topic(reference: ReferenceRegistry, asked: op.DeleteTopic) -> Told:
    return reference.delete_topic(asked.topic, asked.cluster)


async def _store_write_permission(namespace: Namespace, asked: op.SetWritePermission) -> Told:
    return (await set_write_permission(namespace, asked.broker, writable=asked.writable, caller=CALLER)).count


def _write_permission(reference: ReferenceRegistry, asked: op.SetWritePermission) -> Told:
    return reference.set_write_permission(asked.broker, writable=asked.writable)


async def _store_put_kv(namespace: Namespace, asked: op.PutKv) -> Told:
    await put_kv(namespace, asked.namespace, asked.key, asked.value, caller=CALLER)
    return None


def _put_kv(reference: ReferenceRegistry, asked: op.PutKv) -> Told:
    reference.put_kv(asked.namespace, asked.key, asked.value)
    return None


async def _store_delete_kv(namespace: Namespace, asked: op.DeleteKv) -> Told:
    return (await delete_kv(namespace, asked.namespace, asked.key, caller=CALLER)).status is Status.DONE


def _delete_kv(reference: ReferenceRegistry, asked: op.DeleteKv) -> Told:
    return reference.delete_kv(asked.namespace, asked.key)


def _deleting_option(reference: ReferenceRegistry, asked: op.SetDeletingOption) -> Told:
    reference.delete_topic_with_broker_registration = asked.on
    return None


_OF_STORE: dict[type, Callable[[Namespace, Any], Awaitable[Told]]] = {
    op.Heartbeat: _store_heartbeat,
    op.RegisterTopic: _store_register_topic,
    op.DeleteTopic: _store_delete_topic,
    op.SetWritePermission: _store_write_permission,
    op.PutKv: _store_put_kv,
    op.DeleteKv: _store_delete_kv,
}
_OF_REFERENCE: dict[type, Callable[[ReferenceRegistry, Any], Told]] = {
    op.Heartbeat: _heartbeat,
    op.Unregister: _unregister,
    op.RegisterTopic: _register_topic,
    op.DeleteTopic: _delete_topic,
    op.SetWritePermission: _write_permission,
    op.PutKv: _put_kv,
    op.DeleteKv: _delete_kv,
    op.SetDeletingOption: _deleting_option,
}
