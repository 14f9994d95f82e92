"""What all schemas share.

What is in the table: topics, brokers, clusters, key-values.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from routebook.model.broker import DataVersion, Instance
from routebook.model.topic import QueueData
from routebook.registry.reading import BrokerView, ClusterView

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class Given(BaseModel):
    """A body from outside: a field that is not known is a mistake to hear about, not to pass over."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """A body of ours."""

    model_config = ConfigDict(frozen=True)


Version = Annotated[int, Field(description="The version of the table that holds this change.", examples=[42])]
NextCursor = Annotated[
    str | None, Field(description="Give it as `cursor` to read on; null at the end.", examples=[None])
]


class Written(Answer):
    """A change was made, or was there already; this worker has seen `version`."""

    version: Version


class Touched(Answer):
    """How much a change reached."""

    count: int = Field(description="The number of topic entries it was about.", examples=[2])
    version: Version


class Queues(Answer):
    """One topic on one broker."""

    read_queues: int = Field(examples=[8])
    write_queues: int = Field(examples=[8])
    perm: int = Field(description="Sum of 4 (read), 2 (write), 1 (inherit), 8 (priority).", examples=[6])
    flags: int = Field(examples=[0])

    @classmethod
    def of(cls, queue: QueueData) -> "Queues":
        return cls(read_queues=queue.read_queues, write_queues=queue.write_queues, perm=queue.perm, flags=queue.flags)


class Topic(Answer):
    """A topic and where it has queues."""

    topic: str = Field(examples=["TopicA"])
    queues: dict[str, Queues] = Field(description="By broker name.")

    @classmethod
    def of(cls, topic: str, queues: Mapping[str, QueueData]) -> "Topic":
        return cls(topic=topic, queues={name: Queues.of(queue) for name, queue in sorted(queues.items())})


class Topics(Answer):
    topics: list[Topic]
    next_cursor: NextCursor


class DataVersionShown(Answer):
    state_version: int
    timestamp: int
    counter: int

    @classmethod
    def of(cls, version: DataVersion) -> "DataVersionShown":
        return cls(state_version=version.state_version, timestamp=version.timestamp, counter=version.counter)


class Member(Answer):
    """One seat of a broker group. What only a live entry knows is null when there is none."""

    id: int = Field(description="0 is the master.", examples=[0])
    address: str = Field(examples=["127.0.0.11:10911"])
    ha_address: str | None = Field(examples=["127.0.0.11:10912"])
    timeout_ms: int | None = Field(examples=[30000])
    data_version: DataVersionShown | None
    filters: list[str]
    incarnation: str | None = Field(examples=["5f0c9a1be2d34c77"])

    @classmethod
    def of(cls, broker_id: int, address: str, instance: Instance | None) -> "Member":
        if instance is None:
            return cls(
                id=broker_id,
                address=address,
                ha_address=None,
                timeout_ms=None,
                data_version=None,
                filters=[],
                incarnation=None,
            )
        version = instance.data_version
        return cls(
            id=broker_id,
            address=address,
            ha_address=instance.ha_address or None,
            timeout_ms=instance.timeout_ms,
            data_version=DataVersionShown.of(version) if version else None,
            filters=list(instance.filters),
            incarnation=instance.incarnation,
        )


class Broker(Answer):
    """All brokers sharing a name."""

    name: str = Field(examples=["broker-a"])
    cluster: str = Field(description="The cluster of its first registration.", examples=["DefaultCluster"])
    zone: str | None
    acting_master: bool
    members: list[Member]
    topics: int = Field(description="The number of topics it has.", examples=[2])

    @classmethod
    def of(cls, view: BrokerView) -> "Broker":
        group = view.group
        return cls(
            name=group.name,
            cluster=group.cluster,
            zone=group.zone,
            acting_master=group.acting_master,
            members=[
                Member.of(broker_id, address, view.instances.get(broker_id))
                for broker_id, address in sorted(group.addresses.items())
            ],
            topics=view.topics,
        )


class Brokers(Answer):
    brokers: list[Broker]
    next_cursor: NextCursor


class Cluster(Answer):
    """The names listed under a cluster; a name may stand under several."""

    name: str = Field(examples=["DefaultCluster"])
    brokers: list[str] = Field(examples=[["broker-a", "broker-b"]])
    members: int = Field(description="The number of seats taken in those groups.", examples=[4])
    topics: int = Field(description="The number of topics on them.", examples=[12])

    @classmethod
    def of(cls, view: ClusterView) -> "Cluster":
        return cls(name=view.name, brokers=list(view.brokers), members=view.instances, topics=view.topics)


class Clusters(Answer):
    clusters: list[Cluster]
    next_cursor: NextCursor


class KvGiven(Given):
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "broker-a:8"}]})

    value: str


class KvShown(Answer):
    namespace: str = Field(examples=["ORDER_TOPIC_CONFIG"])
    key: str = Field(examples=["TopicA"])
    value: str = Field(examples=["broker-a:8"])


class KvTable(Answer):
    namespace: str = Field(examples=["ORDER_TOPIC_CONFIG"])
    table: dict[str, str] = Field(examples=[{"TopicA": "broker-a:8"}])
    next_cursor: NextCursor


ROUTE_EXAMPLE: dict[str, Any] = {
    "brokerDatas": [
        {
            "brokerAddrs": {"0": "127.0.0.11:10911"},
            "brokerName": "broker-a",
            "cluster": "DefaultCluster",
            "enableActingMaster": False,
        }
    ],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}],
}
