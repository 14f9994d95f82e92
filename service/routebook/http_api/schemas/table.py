"""Base classes of all schemas, and the contents of the table: topics, brokers, clusters, key-values."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from routebook.model.broker import DataVersion, Instance
from routebook.model.topic import QueueData
from routebook.registry.reading import BrokerView, ClusterView

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class RequestBody(BaseModel):
    """A request body. An unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseBody(BaseModel):
    """A response body."""

    model_config = ConfigDict(frozen=True)


Version = Annotated[int, Field(description="Version of the table that contains this change.", examples=[42])]
NextCursor = Annotated[
    str | None, Field(description="Pass it as `cursor` to read the next page; null on the last page.", examples=[None])
]


class WriteResult(ResponseBody):
    """The change was made, or was there already. This worker has seen `version`."""

    version: Version


class TopicWriteResult(ResponseBody):
    """Result of a change of topic entries (one entry: one topic on one broker group)."""

    count: int = Field(description="Number of topic entries it applied to.", examples=[2])
    version: Version


class Queues(ResponseBody):
    """One topic on one broker group."""

    read_queues: int = Field(examples=[8])
    write_queues: int = Field(examples=[8])
    perm: int = Field(description="Sum of 4 (read), 2 (write), 1 (inherit), 8 (priority).", examples=[6])
    flags: int = Field(examples=[0])

    @classmethod
    def of(cls, queue: QueueData) -> Self:
        return cls(read_queues=queue.read_queues, write_queues=queue.write_queues, perm=queue.perm, flags=queue.flags)


class Topic(ResponseBody):
    """A topic with its queues on each broker group."""

    topic: str = Field(examples=["TopicA"])
    queues: dict[str, Queues] = Field(description="By broker name.")

    @classmethod
    def of(cls, topic: str, queues: Mapping[str, QueueData]) -> Self:
        return cls(topic=topic, queues={name: Queues.of(queue) for name, queue in sorted(queues.items())})


class Topics(ResponseBody):
    topics: list[Topic]
    next_cursor: NextCursor


class DataVersionResult(ResponseBody):
    state_version: int
    timestamp: int
    counter: int

    @classmethod
    def of(cls, version: DataVersion) -> Self:
        return cls(state_version=version.state_version, timestamp=version.timestamp, counter=version.counter)


class InstanceResult(ResponseBody):
    """The instance in one seat of a broker group. What its registration contained is null when it is not known."""

    id: int = Field(description="0 is the master.", examples=[0])
    address: str = Field(examples=["127.0.0.11:10911"])
    ha_address: str | None = Field(examples=["127.0.0.11:10912"])
    timeout_ms: int | None = Field(examples=[30000])
    data_version: DataVersionResult | None
    filters: list[str]
    incarnation: str | None = Field(examples=["5f0c9a1be2d34c77"])

    @classmethod
    def of(cls, broker_id: int, address: str, instance: Instance | None) -> Self:
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
            data_version=DataVersionResult.of(version) if version else None,
            filters=list(instance.filters),
            incarnation=instance.incarnation,
        )


class Broker(ResponseBody):
    """A broker group: all brokers that share a broker name."""

    name: str = Field(examples=["broker-a"])
    cluster: str = Field(description="Cluster of its first registration.", examples=["DefaultCluster"])
    zone: str | None
    acting_master: bool
    members: list[InstanceResult]
    topics: int = Field(description="Number of its topics.", examples=[2])

    @classmethod
    def of(cls, view: BrokerView) -> Self:
        group = view.group
        return cls(
            name=group.name,
            cluster=group.cluster,
            zone=group.zone,
            acting_master=group.acting_master,
            members=[
                InstanceResult.of(broker_id, address, view.instances.get(broker_id))
                for broker_id, address in sorted(group.addresses.items())
            ],
            topics=view.topics,
        )


class Brokers(ResponseBody):
    brokers: list[Broker]
    next_cursor: NextCursor


class Cluster(ResponseBody):
    """The broker groups listed under a cluster. A group can be listed under several clusters."""

    name: str = Field(examples=["DefaultCluster"])
    brokers: list[str] = Field(examples=[["broker-a", "broker-b"]])
    members: int = Field(description="Number of occupied seats in those groups.", examples=[4])
    topics: int = Field(description="Number of topics on them.", examples=[12])

    @classmethod
    def of(cls, view: ClusterView) -> Self:
        return cls(name=view.name, brokers=list(view.brokers), members=view.instances, topics=view.topics)


class Clusters(ResponseBody):
    clusters: list[Cluster]
    next_cursor: NextCursor


class KvInput(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "broker-a:8"}]})

    value: str


class KvValue(ResponseBody):
    namespace: str = Field(examples=["ORDER_TOPIC_CONFIG"])
    key: str = Field(examples=["TopicA"])
    value: str = Field(examples=["broker-a:8"])


class KvTable(ResponseBody):
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
