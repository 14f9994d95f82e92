"""What became of registrations and heartbeats is counted where the scripts say it."""

from routebook.observability.metrics import Metrics
from routebook.runtime.measured_scripts import MeasuredScripts
from routebook.store.connection.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace
from routebook.store.registration import heartbeat_broker
from routebook.store.scripts import ScriptSet
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, registration, topics, version


async def test_each_outcome_is_counted_once(client: StoreClient, namespace_name: str) -> None:
    metrics = Metrics()
    namespace = Namespace(client, Keys(namespace_name), MeasuredScripts(ScriptSet.load(), metrics))
    worker = PlainWorker(namespace)
    await worker.register(registration(A, data_version=version(state=2)))
    await worker.register(registration(A, data_version=version(state=2)))
    await worker.register(registration(B, data_version=version(state=1)))
    await worker.register(registration(B, broker="other", topics=topics("only")))
    await heartbeat_broker(namespace, "east", "broker-a", 0, caller=CALLER)
    await heartbeat_broker(namespace, "east", "nobody", 0, caller=CALLER)
    said = metrics.exposition().decode()
    for kind in ("changed", "unchanged", "turned_down", "refused"):
        assert f'routebook_registrations_total{{kind="{kind}"}} 1.0' in said
    assert "routebook_heartbeats_total 1.0" in said
