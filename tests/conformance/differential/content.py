"""Random registrations: bodies in all formats that peers send, and in some that none sends."""

from random import Random
from typing import Any

from tests.conformance.differential.frames import NEWEST
from tests.conformance.differential.steps import Body, Bytes, Compressed, IntegerKeys, Json, NoBody, Step

CLUSTERS = ("@east", "@west")
BROKERS = ("@a", "@b")
ADDRESSES = ("127.0.0.1:10911", "127.0.0.2:10911", "127.0.0.3:10911", "127.0.0.4:10911")
SOLO = "@solo"
"""The only topic with varying flags. Only one broker has it, since otherwise the order of a hash map would decide which
flags count.
"""
FLAGS = {
    "@orders": 0,
    "@unit": 1,
    "@sub/unit": 2,
    '@quote"d/é': 3,
    "%RETRY%@billing": 0,
    "rmq_sys_SYNC_BROKER_MEMBER_@a": 0,
}
TOPICS = tuple(FLAGS)
ABOVE_DOUBLES = 2**53 + 1
MAX_QUEUES = 65_536
MAX_STATE_VERSION = 100_000_000
"""Larger values of both are refused (test_known_differences)."""
T0 = 1_700_000_000_000
OLD_VERSIONS = (399, 401, 411)
NEW_VERSIONS = (413, 479, NEWEST)


def cluster(dice: Random) -> str:
    return dice.choice([*CLUSTERS[:1] * 5, *CLUSTERS])


def broker(dice: Random) -> str:
    return dice.choice([*BROKERS[:1] * 2, *BROKERS])


def address(dice: Random) -> str:
    return dice.choice([*ADDRESSES[:1] * 2, *ADDRESSES])


def topic(dice: Random) -> str:
    return dice.choice([*TOPICS, *TOPICS[:1] * 3, SOLO, "@other"])


def data_version(dice: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "counter": dice.choice([0, 0, 1, 2, 3]),
        "stateVersion": dice.choice([0] * 6 + [1, 1, 2]),
        "timestamp": T0 + dice.choice([0, 0, 0, 1]),
    }
    if dice.random() < 0.05:
        extreme = dice.choice([ABOVE_DOUBLES, ABOVE_DOUBLES - 1, -1, 2**63 - 1])
        field = dice.choice(["counter", "stateVersion"])
        fields[field] = min(extreme, MAX_STATE_VERSION) if field == "stateVersion" else extreme
    if dice.random() < 0.05:
        fields["counter"] = str(fields["counter"])
    if dice.random() < 0.06:
        del fields[dice.choice(list(fields))]
    return fields


def topic_config(dice: Random, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topicName": name,
        "perm": dice.choice([6, 6, 6, 7, 4, 2, 0, 15]),
        "readQueueNums": dice.choice([4, 8, 8]),
        "writeQueueNums": dice.choice([4, 8, 8, 0]),
        "topicSysFlag": dice.randrange(4) if name == SOLO else FLAGS.get(name, 0),
        "order": dice.random() < 0.2,
        "topicFilterType": "SINGLE_TAG",
        "attributes": dice.choice([{}, {"+message.type": "FIFO"}]),
    }
    if dice.random() < 0.1:
        fields["readQueueNums"] = dice.choice(["8", -1, MAX_QUEUES])
    if dice.random() < 0.06:
        del fields[dice.choice([key for key in fields if key not in {"topicName", "topicSysFlag"}])]
    if dice.random() < 0.06:
        fields["unknown"] = {"to": ["any", 1.5, None]}
    return fields


def topic_names(dice: Random, broker_name: str) -> list[str]:
    """Usually at least two topics, since a single topic counts as an increment."""
    legal = [*TOPICS, *([SOLO] if broker_name == BROKERS[0] else [])]
    return dice.sample(legal, dice.choice([0, 1, 1, 2, 2, 2, 3, 4]))


def mapping(dice: Random, name: str, host: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "bname": host,
        "currIdMap": IntegerKeys({i: dice.randrange(3) for i in dice.sample(range(12), dice.choice([0, 1, 2, 3]))}),
        "dirty": dice.random() < 0.2,
        "epoch": dice.choice([0, 1, 7, T0 + 2, ABOVE_DOUBLES]),
        "scope": "__global__",
        "topic": name,
        "totalQueues": dice.choice([0, 4, 8]),
    }
    if dice.random() < 0.15:
        del fields[dice.choice(["currIdMap", "dirty", "epoch", "scope", "totalQueues"])]
    return fields


def mappings(dice: Random, broker_name: str) -> dict[str, dict[str, Any]]:
    if dice.random() < 0.75:
        return {}
    hosts = [*[broker_name] * 4, *BROKERS]
    return {name: mapping(dice, name, dice.choice(hosts)) for name in dice.sample(TOPICS, dice.choice([1, 1, 2]))}


def filters(dice: Random) -> list[str] | None:
    return dice.choice([None, None, [], [], ["127.0.0.1:30000"], ["127.0.0.1:30000", "127.0.0.1:30001"]])


def wrapper(dice: Random, broker_name: str) -> dict[str, Any]:
    names = topic_names(dice, broker_name)
    keys = {name: name for name in names}
    if names and dice.random() < 0.12:
        keys[names[0]] = "@another spelling"
    fields: dict[str, Any] = {
        "dataVersion": data_version(dice),
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": T0},
        "topicConfigTable": {keys[name]: topic_config(dice, name) for name in names},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": mappings(dice, broker_name),
    }
    if dice.random() < 0.06:
        del fields[dice.choice(["dataVersion", "mappingDataVersion", "topicConfigTable", "topicQueueMappingInfoMap"])]
    return fields


def json_body(dice: Random, broker_name: str, version: int) -> Body:
    inner = wrapper(dice, broker_name)
    if version < 37:
        # No release of that age has static topics.
        inner.pop("topicQueueMappingInfoMap", None)
        return Json(inner)
    fields: dict[str, Any] = {"filterServerList": filters(dice), "topicConfigSerializeWrapper": inner}
    if dice.random() < 0.1:
        del fields["filterServerList"]
    return Json(fields, quoted_keys=dice.random() < 0.3)


def another_table(dice: Random, step: Step) -> Body:
    """Another table with the former data version, which must be ignored."""
    value = step.body.value if isinstance(step.body, Json) else None
    before = value.get("topicConfigSerializeWrapper") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(before, dict) or "dataVersion" not in before:
        return step.body
    inner = wrapper(dice, str((step.ext or {})["brokerName"])) | {"dataVersion": before["dataVersion"]}
    return Json({**value, "topicConfigSerializeWrapper": inner})


def compressed_body(dice: Random, broker_name: str, version: int) -> Body:
    topics = []
    # This format has no flags, and a topic has the same flags on all brokers here: see SOLO.
    for name in [name for name in topic_names(dice, broker_name) if FLAGS.get(name, 0) == 0]:
        # The attributes end at a blank, so this format cannot have names with blanks.
        text = f"{name} {dice.choice([4, 8])} {dice.choice([4, 8])} {dice.choice([6, 7, 4])} SINGLE_TAG"
        topics.append(text + dice.choice(["", " {}", ' {"+message.type":"FIFO"}', " no-json"]))
    if topics and dice.random() < 0.06:
        topics[0] = dice.choice(["@orders 8 8 6", "@orders 8 x 6 SINGLE_TAG", "@orders 8 8 6 NO_SUCH_TAG"])
    hosted = tuple(mappings(dice, broker_name).values())
    ends_with_mappings = version >= 413 if dice.random() < 0.95 else version < 413
    return Compressed(
        data_version=data_version(dice),
        topics=tuple(topics),
        filters=filters(dice),
        mappings=hosted if ends_with_mappings else None,
        cut=dice.choice([0] * 15 + [1, 9]),
        more=dice.choice([b""] * 9 + [b"more"]),
    )


def no_table(dice: Random, version: int) -> Body:
    null = Bytes(b"null") if version >= 37 else NoBody()
    return dice.choice(
        [
            NoBody(),
            null,
            Bytes(b"{}"),
            Bytes(b'{"topicConfigSerializeWrapper":{'),
            Bytes(b"[]"),
            Json({"topicConfigSerializeWrapper": {"dataVersion": {"counter": "many"}}}),
        ]
    )
