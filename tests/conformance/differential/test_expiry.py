"""Who falls silent leaves the same table behind."""

from typing import Any

import pytest

from tests.conformance.differential import said
from tests.conformance.differential.line import RealSide
from tests.conformance.differential.living import Twins
from tests.conformance.differential.moods import AT_START, properties
from tests.conformance.differential.steps import Bytes, Json, Step

LONG, SHORT = "600000", "1000"


def registers(broker: str, broker_id: int, address: str, timeout: str, **more: Any) -> Step:
    ext: dict[str, Any] = {
        "brokerName": broker,
        "brokerAddr": address,
        "clusterName": said.CLUSTERS[0],
        "haServerAddr": address,
        "brokerId": str(broker_id),
        "heartbeatTimeoutMillis": timeout,
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": said.T0}
    topics = {name: {"topicName": name, "topicSysFlag": said.FLAGS[name]} for name in said.TOPICS[:3]}
    body = {
        "filterServerList": ["127.0.0.1:30000"],
        "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": topics},
    }
    return Step(103, ext | more, Json(body), line=address, then="expire" if timeout == SHORT else "")


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("acting", ["true", "false", None])
def test_a_silent_broker_leaves_the_same_behind(apache: RealSide, routebook: RealSide, acting: str | None) -> None:
    """A master that others follow, and a broker that is alone; each registers last, then nothing is heard of it."""
    a, b = said.BROKERS
    first, second, third, fourth = said.ADDRESSES
    more = {} if acting is None else {"enableActingMaster": acting}
    history = [
        Step(318, body=Bytes(properties(AT_START))),
        Step(318, body=Bytes(b"supportActingMaster=true")),
        registers(a, 1, second, LONG, **more),
        registers(a, 2, third, LONG, **more),
        registers(a, 0, first, SHORT, **more),
        Step(105, {"topic": said.TOPICS[0]}),
        registers(b, 0, fourth, SHORT, **more),
        Step(105, {"topic": said.TOPICS[0]}),
        # Back again, with an unchanged version.
        registers(a, 0, first, LONG, **more),
    ]
    found = Twins(apache, routebook).live(history)
    assert found is None, str(found)
