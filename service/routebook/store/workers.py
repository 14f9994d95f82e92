"""open_namespace, migrate_namespace, renew_worker_lease, remove_worker: the start and the presence of workers.

acquire_lease, renew_lease, release_lease: the leader. Every script of the leader names its lease.
"""

import secrets
from dataclasses import dataclass
from typing import Final

from routebook.errors import StoreUnsuitableError
from routebook.model.names import Caller
from routebook.store.namespace import SCHEMA, Namespace, Outcome, Status, pack_caller, status_of, text


@dataclass(frozen=True, slots=True)
class HistoryHead:
    """Which store and history this is, and its last version. Empty and 0 for an empty store."""

    identity: str
    history: str
    version: int
    ms: int
    schema: int = SCHEMA

    @property
    def needs_opening(self) -> bool:
        """Whether `open_namespace` has work to do: after a loss of data, or when an older backup was restored."""
        return not (self.identity and self.history) or self.schema < SCHEMA


async def open_namespace(namespace: Namespace) -> HistoryHead:
    """Give the store an identity and a history if it has none, migrate an older layout, and refuse a newer one."""
    reply = await namespace.run("open_namespace", secrets.token_hex(8), secrets.token_hex(8), SCHEMA)
    if status_of(reply) is Status.REFUSED:
        raise StoreUnsuitableError(
            f"The namespace in the store has layout {int(reply[5])}; this Routebook supports up to {SCHEMA}.",
            advice="Start a Routebook at least as new as the one that wrote it, or set another ROUTEBOOK_NAMESPACE.",
        )
    if int(reply[5]) < SCHEMA:
        migration = await namespace.run("migrate_namespace", SCHEMA)
        if status_of(migration) is Status.REFUSED:
            running = ", ".join(text(worker) for worker in migration[2])
            raise StoreUnsuitableError(
                f"Workers of an older version are running on this namespace ({running}). They cannot run beside this "
                "version, because it changes the layout of the store.",
                advice="Stop all of them, wait ten seconds for any that were killed, and start this version again.",
            )
    return HistoryHead(text(reply[3]), text(reply[4]), int(reply[1]), int(reply[2]), SCHEMA)


@dataclass(frozen=True, slots=True)
class Renewal:
    head: HistoryHead
    is_known: bool
    """False: it is the worker's first renewal, or the worker was removed meanwhile, with its sessions."""
    is_held: bool
    """Whether removals are held until an operator decides."""


WORKER_LEASE_MS: Final = 10_000
"""A worker counts as dead after ten missed renewals."""


async def renew_worker_lease(
    namespace: Namespace, worker: str, lease_ms: int, about: str, *, caller: Caller
) -> Renewal:
    reply = await namespace.run("renew_worker_lease", pack_caller(caller), worker, lease_ms, about)
    head = HistoryHead(text(reply[3]), text(reply[4]), int(reply[1]), int(reply[2]))
    return Renewal(head, is_known=bool(reply[5]), is_held=bool(reply[6]))


async def remove_worker(namespace: Namespace, worker: str, *, caller: Caller, lease: str = "") -> Status:
    """STALE: sessions remain, call again. Without a lease the worker removes itself."""
    reply = await namespace.run("remove_worker", pack_caller(caller), lease, worker, WORKER_LEASE_MS)
    return Outcome.of(reply).status


@dataclass(frozen=True, slots=True)
class Lease:
    """`<token>:<worker>:<nonce>`; scripts compare the whole of it."""

    whole: str

    @property
    def token(self) -> int:
        return int(self.whole.split(":", 1)[0])

    @property
    def worker(self) -> str:
        return self.whole.split(":", 1)[1].rpartition(":")[0]

    @classmethod
    def parse(cls, whole: str) -> "Lease | None":
        return cls(whole) if whole.count(":") >= 2 else None


async def acquire_lease(namespace: Namespace, worker: str, lease_ms: int) -> tuple[bool, Lease]:
    """Whether this worker is the leader now, and the lease in force."""
    reply = await namespace.run("acquire_lease", worker, secrets.token_hex(4), lease_ms)
    return status_of(reply) is Status.DONE, Lease(text(reply[2]))


async def renew_lease(namespace: Namespace, lease: Lease, lease_ms: int) -> bool:
    return Outcome.of(await namespace.run("renew_lease", lease.whole, lease_ms)).status is Status.DONE


async def release_lease(namespace: Namespace, lease: Lease) -> bool:
    return Outcome.of(await namespace.run("release_lease", lease.whole)).status is Status.DONE
