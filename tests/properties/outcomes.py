"""Applies one operation to the store or to the reference model, and returns outcomes that can be compared."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from routebook.model.broker import MinBrokerChange, Registration, RegistrationResult
from routebook.store.administration import delete_kv, delete_topic, put_kv, register_topic, set_write_permission
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import heartbeat_broker
from routebook.store.removal import Removal, unregister_brokers
from tests.properties import operations as op
from tests.properties.plain_worker import CALLER
from tests.reference.registry import Answer, ReferenceRegistry, Unregistration
from tests.support.scripts import NO_BRAKE

STALE_INCARNATION = "0" * 16
Outcome = object
"""What the caller of an operation is answered, in the same form for store and reference model."""


class Worker(Protocol):
    """Turns registrations into calls of scripts."""

    notices: list[MinBrokerChange]
    """Notifications that brokers would receive."""

    async def register(self, registration: Registration) -> RegistrationResult: ...

    async def set_deletion_option(self, *, on: bool) -> None: ...


def outcome_of_worker(result: RegistrationResult) -> Outcome:
    outcome = "accepted" if result.status in {"changed", "unchanged"} else result.status
    return outcome, result.master_address, result.master_ha_address


def outcome_of_reference(answer: Answer) -> Outcome:
    return answer.outcome, answer.master_address, answer.master_ha_address


async def apply_to_store(namespace: Namespace, worker: Worker, operation: op.Operation) -> Outcome:
    if isinstance(operation, op.Register):
        return outcome_of_worker(await worker.register(operation.registration))
    if isinstance(operation, op.SetDeletionOption):
        await worker.set_deletion_option(on=operation.on)
        return None
    if isinstance(operation, op.Unregister):
        return await _store_unregister(namespace, worker, operation)
    return await _STORE_FUNCTIONS[type(operation)](namespace, operation)


def apply_to_reference(reference: ReferenceRegistry, operation: op.Operation, *, incarnation: str = "") -> Outcome:
    if isinstance(operation, op.Register):
        return outcome_of_reference(reference.register(operation.registration, incarnation))
    return _REFERENCE_FUNCTIONS[type(operation)](reference, operation)


async def _store_heartbeat(namespace: Namespace, operation: op.Heartbeat) -> Outcome:
    reply = await heartbeat_broker(
        namespace, operation.cluster, "any-name", 0, caller=CALLER, address=operation.address
    )
    return reply.status is Status.UNCHANGED, reply.data_version


def _heartbeat(reference: ReferenceRegistry, operation: op.Heartbeat) -> Outcome:
    if not reference.heartbeat(operation.cluster, operation.address):
        return False, None
    return True, reference.instances[operation.cluster, operation.address].data_version


async def _store_unregister(namespace: Namespace, worker: Worker, operation: op.Unregister) -> Outcome:
    incarnation = STALE_INCARNATION if operation.stale else ""
    removals = [
        (Removal(cluster, broker, 0, address, incarnation), CALLER) for cluster, broker, address in operation.removals
    ]
    reply = await unregister_brokers(namespace, removals, NO_BRAKE)
    worker.notices.extend(reply.notices)
    assert len(reply.statuses) == len(removals)
    return [status is Status.STALE for status in reply.statuses] if operation.stale else None


def _unregister(reference: ReferenceRegistry, operation: op.Unregister) -> Outcome:
    """RocketMQ does not answer whether the broker existed, so only the effect of a current request is compared."""
    incarnation = STALE_INCARNATION if operation.stale else None
    done = reference.unregister(
        [Unregistration(c, address, broker, incarnation) for c, broker, address in operation.removals]
    )
    return [not was_carried_out for was_carried_out in done] if operation.stale else None


async def _store_register_topic(namespace: Namespace, operation: op.RegisterTopic) -> Outcome:
    return (
        await register_topic(namespace, operation.topic, dict(operation.queues), caller=CALLER)
    ).status is Status.UNKNOWN


def _register_topic(reference: ReferenceRegistry, operation: op.RegisterTopic) -> Outcome:
    return len(reference.register_topic(operation.topic, dict(operation.queues))) < len(operation.queues)


async def _store_delete_topic(namespace: Namespace, operation: op.DeleteTopic) -> Outcome:
    return (await delete_topic(namespace, operation.topic, caller=CALLER, cluster=operation.cluster or "")).count


def _delete_topic(reference: ReferenceRegistry, operation: op.DeleteTopic) -> Outcome:
    return reference.delete_topic(operation.topic, operation.cluster)


async def _store_write_permission(namespace: Namespace, operation: op.SetWritePermission) -> Outcome:
    return (await set_write_permission(namespace, operation.broker, writable=operation.writable, caller=CALLER)).count


def _write_permission(reference: ReferenceRegistry, operation: op.SetWritePermission) -> Outcome:
    return reference.set_write_permission(operation.broker, writable=operation.writable)


async def _store_put_kv(namespace: Namespace, operation: op.PutKv) -> Outcome:
    await put_kv(namespace, operation.namespace, operation.key, operation.value, caller=CALLER)
    return None


def _put_kv(reference: ReferenceRegistry, operation: op.PutKv) -> Outcome:
    reference.put_kv(operation.namespace, operation.key, operation.value)
    return None


async def _store_delete_kv(namespace: Namespace, operation: op.DeleteKv) -> Outcome:
    return (await delete_kv(namespace, operation.namespace, operation.key, caller=CALLER)).status is Status.DONE


def _delete_kv(reference: ReferenceRegistry, operation: op.DeleteKv) -> Outcome:
    return reference.delete_kv(operation.namespace, operation.key)


def _deletion_option(reference: ReferenceRegistry, operation: op.SetDeletionOption) -> Outcome:
    reference.delete_topic_with_broker_registration = operation.on
    return None


_STORE_FUNCTIONS: dict[type, Callable[[Namespace, Any], Awaitable[Outcome]]] = {
    op.Heartbeat: _store_heartbeat,
    op.RegisterTopic: _store_register_topic,
    op.DeleteTopic: _store_delete_topic,
    op.SetWritePermission: _store_write_permission,
    op.PutKv: _store_put_kv,
    op.DeleteKv: _store_delete_kv,
}
_REFERENCE_FUNCTIONS: dict[type, Callable[[ReferenceRegistry, Any], Outcome]] = {
    op.Heartbeat: _heartbeat,
    op.Unregister: _unregister,
    op.RegisterTopic: _register_topic,
    op.DeleteTopic: _delete_topic,
    op.SetWritePermission: _write_permission,
    op.PutKv: _put_kv,
    op.DeleteKv: _delete_kv,
    op.SetDeletionOption: _deletion_option,
}
