"""Names in paths, with the texts and examples of the pages. What is legal says the model."""

from typing import Annotated, Final

from fastapi import Path, Query

TopicName = Annotated[str, Path(description="A topic's name.", examples=["TopicA"])]
ClusterName = Annotated[str, Path(description="A cluster's name.", examples=["DefaultCluster"])]
BrokerName = Annotated[str, Path(description="The name that a broker group shares.", examples=["broker-a"])]
BrokerId = Annotated[int, Path(ge=0, le=2**63 - 1, description="The seat in the group; 0 is the master.", examples=[0])]
KvNamespace = Annotated[str, Path(description="A key-value namespace.", examples=["ORDER_TOPIC_CONFIG"])]
KvKey = Annotated[str, Path(description="A key.", examples=["TopicA"])]
OfCluster = Annotated[str | None, Query(description="Only what belongs to this cluster.", examples=["DefaultCluster"])]

# The last name of a path may hold slashes: RocketMQ's own rules for names are younger than some fleets.
TOPIC: Final = "/v1/topics/{topic:path}"
