"""Both name servers have the same table after a broker expired."""

from typing import Any

import pytest

from tests.conformance.differential import content
from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.connections import RealSide
from tests.conformance.differential.profiles import AT_START, properties
from tests.conformance.differential.steps import Bytes, Json, Step

LONG, SHORT = "600000", "1000"


def register(broker: str, broker_id: int, address: str, timeout: str, **more: Any) -> Step:
    ext: dict[str, Any] = {
        "brokerName": broker,
        "brokerAddr": address,
        "clusterName": content.CLUSTERS[0],
        "haServerAddr": address,
        "brokerId": str(broker_id),
        "heartbeatTimeoutMillis": timeout,
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": content.T0}
    topics = {name: {"topicName": name, "topicSysFlag": content.FLAGS[name]} for name in content.TOPICS[:3]}
    body = {
        "filterServerList": ["127.0.0.1:30000"],
        "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": topics},
    }
    return Step(103, ext | more, Json(body), connection=address, then="expire" if timeout == SHORT else "")


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("acting", ["true", "false", None])
def test_an_expired_broker_leaves_the_same_table(apache: RealSide, routebook: RealSide, acting: str | None) -> None:
    """The master of a group and a single broker register last in their groups, and then send nothing."""
    a, b = content.BROKERS
    first, second, third, fourth = content.ADDRESSES
    more = {} if acting is None else {"enableActingMaster": acting}
    history = [
        Step(318, body=Bytes(properties(AT_START))),
        Step(318, body=Bytes(b"supportActingMaster=true")),
        register(a, 1, second, LONG, **more),
        register(a, 2, third, LONG, **more),
        register(a, 0, first, SHORT, **more),
        Step(105, {"topic": content.TOPICS[0]}),
        register(b, 0, fourth, SHORT, **more),
        Step(105, {"topic": content.TOPICS[0]}),
        # The master returns with an unchanged version.
        register(a, 0, first, LONG, **more),
    ]
    difference = Comparison(apache, routebook).run(history)
    assert difference is None, str(difference)
