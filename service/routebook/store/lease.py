"""acquire_lease, renew_lease, release_lease: who leads. Every script of the leader names its lease."""

import secrets
from dataclasses import dataclass

from routebook.store.namespace import Namespace, Outcome
from routebook.store.statuses import Status, status_of, text


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
    """Whether it is ours now, and the lease in force."""
    reply = await namespace.run("acquire_lease", worker, secrets.token_hex(4), lease_ms)
    return status_of(reply) is Status.DONE, Lease(text(reply[2]))


async def renew_lease(namespace: Namespace, lease: Lease, lease_ms: int) -> bool:
    return Outcome.of(await namespace.run("renew_lease", lease.whole, lease_ms)).status is Status.DONE


async def release_lease(namespace: Namespace, lease: Lease) -> bool:
    return Outcome.of(await namespace.run("release_lease", lease.whole)).status is Status.DONE
