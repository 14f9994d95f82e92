"""Every run of a script is reported once, and the metrics count what its reply says."""

import pytest

from routebook.errors import StoreError, StoreUnavailableError
from routebook.observability.metrics import Metrics
from routebook.store.connection.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet, Status
from routebook.store.reads import read_groups
from routebook.store.registration import heartbeat_broker
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, registration, topics, version


async def test_the_metrics_count_registrations_and_heartbeats_by_outcome(
    client: StoreClient, namespace_name: str
) -> None:
    metrics = Metrics()
    namespace = Namespace(client, Keys(namespace_name), ScriptSet.load(), on_run=metrics.script_run)
    worker = PlainWorker(namespace)
    await worker.register(registration(A, data_version=version(state=2)))
    await worker.register(registration(A, data_version=version(state=2)))
    await worker.register(registration(B, data_version=version(state=1)))
    await worker.register(registration(B, broker="other", topics=topics("only")))
    await heartbeat_broker(namespace, "east", "broker-a", 0, caller=CALLER)
    await heartbeat_broker(namespace, "east", "unknown", 0, caller=CALLER)
    exposition = metrics.exposition().decode()
    for kind in ("changed", "unchanged", "turned_down", "refused"):
        assert f'routebook_registrations_total{{kind="{kind}"}} 1.0' in exposition
    assert "routebook_heartbeats_total 1.0" in exposition


Run = tuple[str, Status | None, type[StoreError] | None]


async def test_a_run_is_reported_with_its_status_or_its_error(client: StoreClient, namespace_name: str) -> None:
    runs: list[Run] = []

    def note(script: str, seconds: float, status: Status | None, error: StoreError | None) -> None:
        assert seconds > 0
        runs.append((script, status, type(error) if error else None))

    namespace = Namespace(client, Keys(namespace_name), ScriptSet.load(), on_run=note)
    await heartbeat_broker(namespace, "east", "unknown", 0, caller=CALLER)
    await read_groups(namespace, {"broker-a": None, "broker-b": None})
    await client.close()
    with pytest.raises(StoreUnavailableError):
        await heartbeat_broker(namespace, "east", "unknown", 0, caller=CALLER)
    with pytest.raises(StoreUnavailableError):
        await read_groups(namespace, {"broker-a": None})
    assert runs == [
        ("heartbeat_broker", Status.UNKNOWN, None),
        ("read_group", None, None),
        ("heartbeat_broker", None, StoreUnavailableError),
        ("read_group", None, StoreUnavailableError),
    ]
