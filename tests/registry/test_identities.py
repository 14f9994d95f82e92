"""Identities on the workers: created and revoked everywhere, found by each credential, kept after a loss of data."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from routebook.errors import ConflictError, InvalidInputError, NotFoundError
from routebook.model.identity import Credentials, Identity, Role
from routebook.model.names import Caller
from routebook.registry.identities import open_to_all
from routebook.settings import load
from tests.support.in_process import InProcessWorker, running_worker, start_worker
from tests.support.waiting import until

CALLER = Caller("test")
OPS = Identity("ops", Role.OPERATOR, topics=("pay-",))


@pytest.fixture
async def workers(store_url: str, namespace_name: str) -> AsyncIterator[tuple[InProcessWorker, InProcessWorker]]:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(running_worker(store_url, namespace_name))
        yield one, await stack.enter_async_context(running_worker(store_url, namespace_name))


async def test_an_identity_is_known_to_all_workers_until_it_is_revoked(
    workers: tuple[InProcessWorker, InProcessWorker],
) -> None:
    one, other = (worker.registry.identities for worker in workers)
    created = await one.create(OPS, CALLER)
    assert one.by_token(created.token) == OPS
    await until(lambda: other.by_token(created.token) == OPS, timeout_s=5)
    assert workers[0].replica.table.digest == workers[1].replica.table.digest
    await other.revoke("ops", CALLER)
    assert other.by_token(created.token) is None
    await until(lambda: one.by_token(created.token) is None, timeout_s=5)
    assert workers[0].replica.table.digest == workers[1].replica.table.digest


async def test_a_worker_that_starts_later_loads_the_identities(
    workers: tuple[InProcessWorker, InProcessWorker], store_url: str, namespace_name: str
) -> None:
    created = await workers[0].registry.identities.create(OPS, CALLER)
    async with running_worker(store_url, namespace_name) as late:
        assert late.registry.identities.by_token(created.token) == OPS
        assert late.replica.table.digest == workers[0].replica.table.digest
        assert late.replica.table.digest == late.replica.table.compute_digest()


async def test_each_credential_finds_its_identity(workers: tuple[InProcessWorker, InProcessWorker]) -> None:
    identities = workers[0].registry.identities
    credentials = Credentials(access_key="key-1", secret="a-secret-of-some-length", certificate="broker.example")
    created = await identities.create(OPS, CALLER, credentials=credentials)
    assert (created.access_key, created.secret) == ("key-1", "a-secret-of-some-length")
    assert identities.by_access_key("key-1") == (OPS, "a-secret-of-some-length")
    assert identities.by_certificate("broker.example") == OPS
    assert identities.by_certificates(["other", "broker.example"]) == OPS
    for missing in ("", "key", "key-1 ", "broker.example"):
        assert identities.by_access_key(missing) is None
    for missing in ("", "rb_", created.token[:-1], created.token + "x"):
        assert identities.by_token(missing) is None
    assert identities.by_certificate("") is None


async def test_a_secret_is_made_for_an_access_key(workers: tuple[InProcessWorker, InProcessWorker]) -> None:
    identities = workers[0].registry.identities
    created = await identities.create(OPS, CALLER, credentials=Credentials(access_key="key-1"))
    assert len(created.secret) >= 32
    assert identities.by_access_key("key-1") == (OPS, created.secret)
    assert created.secret not in repr(created)
    assert created.token not in repr(created)


async def test_an_expired_identity_is_not_found_and_identities_stay_on(
    workers: tuple[InProcessWorker, InProcessWorker],
) -> None:
    identities = workers[0].registry.identities
    credentials = Credentials(access_key="key-1", certificate="c.example")
    created = await identities.create(Identity("b", Role.BROKER), CALLER, credentials=credentials, valid_for_ms=1)
    await until(lambda: identities.by_token(created.token) is None, timeout_s=5)
    assert identities.by_access_key("key-1") is None
    assert identities.by_certificate("c.example") is None
    assert identities.any
    assert identities.has_brokers


async def test_wrong_identities_are_refused(workers: tuple[InProcessWorker, InProcessWorker]) -> None:
    identities = workers[0].registry.identities
    for wrong in (Identity("a b", Role.READ), Identity("ok", Role.READ, topics=("",)), Identity("operator", Role.READ)):
        with pytest.raises(InvalidInputError):
            await identities.create(wrong, CALLER)
    with pytest.raises(InvalidInputError):
        await identities.create(OPS, CALLER, valid_for_ms=-1)
    with pytest.raises(NotFoundError, match="ops"):
        await identities.revoke("ops", CALLER)
    await identities.create(OPS, CALLER)
    with pytest.raises(ConflictError, match="exists already"):
        await identities.create(OPS, CALLER)
    assert [record.identity for record in identities.all()] == [OPS]


async def test_what_is_open_to_all(workers: tuple[InProcessWorker, InProcessWorker]) -> None:
    identities = workers[0].registry.identities
    public = load({"bind_address": "0.0.0.0"}).settings
    administered = load({"bind_address": "0.0.0.0", "remoting_admin": "open"}).settings
    assert open_to_all(load({}).settings, identities) == ()
    assert open_to_all(public, identities) == ("registration",)
    assert open_to_all(administered, identities) == ("registration", "remoting-administration")
    await identities.create(OPS, CALLER)
    assert open_to_all(public, identities) == ("registration",)
    await identities.create(Identity("fleet", Role.BROKER), CALLER)
    assert open_to_all(public, identities) == ()


async def test_identities_survive_a_loss_of_the_store(
    workers: tuple[InProcessWorker, InProcessWorker], store_url: str, namespace_name: str
) -> None:
    one, other = workers
    kept = await one.registry.identities.create(OPS, CALLER)
    revoked = await one.registry.identities.create(Identity("gone", Role.READ), CALLER)
    await until(lambda: other.registry.identities.by_token(revoked.token) is not None, timeout_s=5)
    history = one.replica.history
    keys = [key async for key in _keys(one)]
    await one.client.call("DEL", *keys)
    await until(lambda: one.replica.history != history and other.replica.history != history, timeout_s=20)
    # Nothing is open meanwhile, and a revocation applies to what the store has lost.
    assert one.registry.identities.by_token(kept.token) == OPS
    await one.registry.identities.revoke("gone", CALLER)
    await until(lambda: other.registry.identities.by_token(revoked.token) is None, timeout_s=5)
    one.spawn(one.restoring.run())
    await until(lambda: "ops" in one.replica.table.identities, timeout_s=20)
    assert "gone" not in one.replica.table.identities
    late = await start_worker(store_url, namespace_name)
    try:
        assert late.registry.identities.by_token(kept.token) == OPS
    finally:
        await late.end()


async def _keys(worker: InProcessWorker) -> AsyncIterator[bytes]:
    cursor = b"0"
    pattern = worker.namespace.keys.table("*")
    while True:
        cursor, found = await worker.client.call("SCAN", cursor, "MATCH", pattern.replace("{", "[{]"), "COUNT", 1000)
        for key in found:
            yield key
        if int(cursor) == 0:
            return
