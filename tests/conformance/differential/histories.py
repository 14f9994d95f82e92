"""Random histories with so few brokers, addresses and topics that requests soon affect each other."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.differential import content
from tests.conformance.differential.frames import NEWEST
from tests.conformance.differential.profiles import AT_START, ORDER_NAMESPACE, SWITCHES, profile_of, properties
from tests.conformance.differential.steps import Body, Bytes, Crc, Json, NoBody, Step

STEPS = 150
READS = frozenset({101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 319, 322, 901, 904})
"""Requests without an effect on other answers. They may be handled in any order."""
SAFE_WITHOUT_ANSWER = frozenset({101, 105, 106, 206, 224, 304, 322, 901, 904})
"""Requests that can be sent as one-way requests or as answers, because the history need not wait for an effect."""


def history_of(seed: int, steps: int = STEPS) -> list[Step]:
    return _Generator(seed).generate(steps)


class _Generator:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.profile = profile_of(seed)
        self.registrations: list[Step] = []
        self.written = 0
        self.choices: list[tuple[float, Callable[[], Step]]] = [
            (26, self.register),
            (7, self.repeat),
            (6, self.unregister),
            (5, self.register_topic),
            (3, self.delete_topic),
            (4, self.permission),
            (4, self.put_kv),
            (1.5, self.delete_kv),
            (3, self.update_config),
            (1.5, self.heartbeat),
            (3, self.query_version),
            (18, self.route),
            (4, self.cluster_info),
            (9, self.listing),
            (4, self.member_group),
            (3, self.read_kv),
            (1, self.unknown),
            (1.5, self.incomplete),
        ]

    def generate(self, steps: int) -> list[Step]:
        weights = [weight for weight, _ in self.choices]
        written = [Step(318, body=Bytes(properties(AT_START)))]
        if self.profile.ordered:
            entry = {"namespace": ORDER_NAMESPACE, "key": "@created"}
            written += [Step(100, entry | {"value": "now"}), Step(102, entry)]
        if self.profile.acting:
            written.append(Step(318, body=Bytes(b"supportActingMaster=true")))
        if self.profile.deleting:
            written.append(Step(318, body=Bytes(b"deleteTopicWithBrokerRegistration=true")))
        while len(written) < steps:
            (make_step,) = self.dice.choices([make_step for _, make_step in self.choices], weights)
            step = make_step()
            written.append(self.with_random_header(step))
        return written

    def with_random_header(self, step: Step) -> Step:
        """The step with another header: binary, of another release, with numbers as strings, or with unknown fields."""
        dice = self.dice
        if step.version == NEWEST and dice.random() < 0.3:
            step = replace(
                step, version=dice.choice([0, 36, 37, 399, 400, 401, 475, 479, 613]) if step.code != 103 else NEWEST
            )
        if step.code <= 2**15 - 1 and dice.random() < self.profile.binary:
            step = replace(step, header="binary")
        elif dice.random() < 0.1:
            step = replace(step, more=self.odd_header(step))
        if step.ext is not None and dice.random() < 0.08:
            step = replace(
                step, ext={**step.ext, **dice.choice([{"ns": "x"}, {"nsd": "", "lo": "true"}, {"AccessKey": "@k"}])}
            )
        if step.ext is not None and dice.random() < 0.08:
            step = replace(step, ext={key: with_its_own_type(value) for key, value in step.ext.items()})
        if step.code not in {103, 217, 318, 322} and dice.random() < 0.03:
            step = replace(step, body=Bytes(b"an ignored body"))
        if step.code in SAFE_WITHOUT_ANSWER and dice.random() < 0.05:
            step = replace(step, flag=dice.choice([2, 2, 2, 3, 1]))
        elif step.code == 100 and {"namespace", "key", "value"} <= (step.ext or {}).keys() and dice.random() < 0.1:
            self.written += 1
            step = replace(step, ext={**(step.ext or {}), "value": f"oneway {self.written}"}, flag=2)
        elif dice.random() < 0.02:
            step = replace(step, flag=4)
        return step

    def odd_header(self, step: Step) -> dict[str, object]:
        return self.dice.choice(
            [
                {"code": str(step.code)},
                {"version": str(step.version), "language": "KLINGON"},
                {"language": "GO", "remark": "hello"},
                {"unknown": [1, {"a": None}], "serializeTypeCurrentRPC": "ROCKETMQ"},
            ]
        )

    # Brokers

    def register(self) -> Step:
        dice = self.dice
        version = self.version()
        address = content.address(dice)
        # If connections are lost, each address has one group only: with two, the order of a hash map would decide in
        # which one Apache's name server looks for it. All brokers are in one cluster, since Apache's name server
        # removes a broker only from a group that its own cluster created.
        name = content.BROKERS[content.ADDRESSES.index(address) % 2] if self.profile.losing else content.broker(dice)
        broker_id = dice.choice([0, 0, 0, 1, 1, 1, 2, 2, 3])
        if dice.random() < 0.03:
            broker_id = dice.choice([2**32, 2**53, content.ABOVE_DOUBLES, 2**63 - 1])
        ext: dict[str, Any] = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": content.CLUSTERS[0] if self.profile.losing else content.cluster(dice),
            "haServerAddr": address.replace("10911", "10912"),
            "brokerId": str(broker_id),
        }
        compressed = version >= 37 and dice.random() < 0.15
        ext["compressed"] = str(compressed).lower()
        acting = dice.choice(
            ["true", "true", "TRUE", "false"] if self.profile.acting else [None, None, "false", "true"]
        )
        if acting is not None and version >= 413:
            ext["enableActingMaster"] = acting
        if dice.random() < 0.6:
            ext["heartbeatTimeoutMillis"] = dice.choice(["120000", "600000"])
        if dice.random() < 0.35:
            ext["__ZONE_NAME"] = dice.choice(["az-1", "az-2", "AZ-1"])
        body: Body = (
            content.compressed_body(dice, name, version) if compressed else content.json_body(dice, name, version)
        )
        if dice.random() < 0.05:
            body = content.no_table(dice, version)
        if dice.random() < 0.03:
            ext["compressed"] = str(not compressed).lower()
        if dice.random() < 0.04:
            ext["brokerId"] = dice.choice(["+1", " 1", "1.0", "one", "", "01", "99999999999999999999"])
        step = Step(103, ext, body, connection=self.connection_of(ext), version=version)
        sums: list[Crc] = ["none", "right", "right", "right"]
        # If two things are wrong, each name server reports another one.
        is_whole = ext["brokerId"].isdigit() and int(ext["brokerId"]) < 2**63
        step = replace(step, crc=dice.choice(sums if dice.random() < 0.9 or not is_whole else ["wrong", "garbage"]))
        self.registrations.append(step)
        return self.with_loss(step)

    def version(self) -> int:
        if self.dice.random() < 0.04:
            return self.dice.choice([0, 36, 37, -1])
        return self.dice.choice(content.OLD_VERSIONS if self.profile.old_peers else content.NEW_VERSIONS)

    def connection_of(self, ext: dict[str, Any]) -> str:
        """One connection per broker. If connections are lost, each is for one seat only, since Apache's name server
        removes only one of several brokers on a lost connection.
        """
        if self.profile.losing:
            return f"{ext['clusterName']} {ext['brokerName']} {ext['brokerAddr']}"
        return f"broker {ext['brokerAddr']}"

    def with_loss(self, step: Step) -> Step:
        if self.profile.losing and self.dice.random() < 0.15:
            return replace(step, then=self.dice.choice(["lose", "lose", "replace"]))
        return step

    def repeat(self) -> Step:
        """Repeats an earlier registration exactly or with one changed field, whatever has happened since."""
        if not self.registrations:
            return self.register()
        step = self.dice.choice(self.registrations[-8:])
        if self.dice.random() < 0.2:
            step = replace(step, body=content.another_table(self.dice, step))
        if self.dice.random() < 0.3:
            assert step.ext is not None
            changed = {
                "brokerId": self.dice.choice(["0", "1", "2"]),
                "brokerAddr": content.address(self.dice),
                "haServerAddr": "127.0.0.9:10912",
                "heartbeatTimeoutMillis": "700000",
                "__ZONE_NAME": "az-3",
            }
            if self.profile.losing:
                del changed["brokerAddr"]
            key = self.dice.choice(list(changed))
            ext = {**step.ext, key: changed[key]}
            step = replace(step, ext=ext, connection=self.connection_of(ext))
        return self.with_loss(step)

    def registered_broker(self) -> dict[str, Any]:
        """Mostly a broker that has registered."""
        if self.registrations and self.dice.random() < 0.75:
            ext = self.dice.choice(self.registrations[-10:]).ext or {}
            return {key: ext[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}
        return {
            "brokerName": content.broker(self.dice),
            "brokerAddr": content.address(self.dice),
            "clusterName": content.cluster(self.dice),
            "brokerId": self.dice.choice(["0", "1", "7"]),
        }

    def unregister(self) -> Step:
        ext = self.registered_broker()
        # Without a number, Apache's name server would fail halfway, after its answer.
        if self.dice.random() < 0.1 or not ext["brokerId"].isdigit() or int(ext["brokerId"]) >= 2**63:
            ext["brokerId"] = "5"
        if self.dice.random() < 0.1:
            ext["brokerName"] = "@unknown"
        return Step(104, ext, connection=self.connection_of(ext))

    def heartbeat(self) -> Step:
        ext = self.registered_broker() | {"epoch": "1", "maxOffset": "2"}
        return Step(904, ext, connection=self.connection_of(ext))

    def query_version(self) -> Step:
        ext = self.registered_broker()
        # Whether two data versions without a timestamp are equal depends on the clock.
        bodies: list[Body] = [Json({"timestamp": content.T0} | content.data_version(self.dice))] * 6
        bodies += [NoBody(), Bytes(b"no json"), Bytes(b"null"), Bytes(b'{"timestamp":1}')]
        return Step(322, ext, self.dice.choice(bodies), connection=self.connection_of(ext))

    def member_group(self) -> Step:
        ext: dict[str, Any] = {"clusterName": content.cluster(self.dice), "brokerName": self.maybe_unknown_broker()}
        if self.dice.random() < 0.1:
            del ext["clusterName"]
        return Step(901, ext)

    def maybe_unknown_broker(self) -> str:
        return "@unknown" if self.dice.random() < 0.1 else content.broker(self.dice)

    # Topics

    def register_topic(self) -> Step:
        dice = self.dice
        name = dice.choice([content.topic(dice)])
        hosts = content.BROKERS[:1] if name == content.SOLO else [*content.BROKERS, "@unknown"]
        queues = [
            {
                "brokerName": host,
                "perm": dice.choice([6, 4, 7]),
                "readQueueNums": dice.choice([4, 8, "16"]),
                "topicSysFlag": content.FLAGS.get(name, 0),
                "writeQueueNums": 8,
            }
            for host in dice.sample(hosts, min(len(hosts), dice.choice([1, 1, 2, 3])))
        ]
        if queues and dice.random() < 0.1:
            del queues[0][dice.choice(["perm", "readQueueNums", "writeQueueNums"])]
        bodies: list[Body] = [Json({"brokerDatas": [], "filterServerTable": {}, "queueDatas": queues})] * 8
        bodies += [NoBody(), Bytes(b"{}"), Bytes(b'{"queueDatas":[]}'), Bytes(b"no json"), Bytes(b"null")]
        return Step(217, {"topic": name}, dice.choice(bodies))

    def delete_topic(self) -> Step:
        ext: dict[str, Any] = {"topic": content.topic(self.dice)}
        if self.dice.random() < 0.6:
            ext["clusterName"] = self.dice.choice([*content.CLUSTERS * 3, "@unknown", ""])
        return Step(216, ext)

    def permission(self) -> Step:
        return Step(self.dice.choice([205, 205, 327]), {"brokerName": self.maybe_unknown_broker()})

    def route(self) -> Step:
        dice = self.dice
        ext: dict[str, Any] = {"topic": content.topic(dice)}
        if dice.random() < 0.3:
            ext["acceptStandardJsonOnly"] = dice.choice(["true", "TRUE", "false", "yes"])
        if dice.random() < 0.3:
            ext["__ZONE_MODE"] = dice.choice(["true", "True", "false"])
            ext["__ZONE_NAME"] = dice.choice(["az-1", "AZ-1", "Az-2", "az-2", "az-9", "", " "])
        if dice.random() < 0.1:
            ext["acceptStandardJsonOnly"] = True
        return Step(105, ext)

    # Lists

    def cluster_info(self) -> Step:
        return Step(106, self.dice.choice([None, {}]))

    def listing(self) -> Step:
        code = self.dice.choice([206, 206, 224, 224, 304, 304, 311, 312, 313])
        if code == 224:
            return Step(224, {"cluster": self.dice.choice([*content.CLUSTERS, "@unknown"])})
        return Step(code)

    # Key-values and configuration

    def namespace(self) -> str:
        if self.profile.ordered:
            return self.dice.choice([ORDER_NAMESPACE, ORDER_NAMESPACE, "@config"])
        return "@config"

    def put_kv(self) -> Step:
        ext: dict[str, Any] = {
            "namespace": self.namespace(),
            "key": self.dice.choice([*content.TOPICS[:3], "k"]),
            "value": self.dice.choice(["@a:8", "@a:4;@b:4", "", "line\nfeed", "é/"]),
        }
        if self.dice.random() < 0.2:
            del ext[self.dice.choice(["value", "value", "key", "namespace"])]
        return Step(100, ext)

    def delete_kv(self) -> Step:
        return Step(102, {"namespace": self.namespace(), "key": self.dice.choice([*content.TOPICS[:3], "k", "absent"])})

    def read_kv(self) -> Step:
        namespace = self.dice.choice([self.namespace(), "@config", "@absent"])
        if self.dice.random() < 0.5:
            return Step(219, {"namespace": namespace})
        return Step(101, {"namespace": namespace, "key": self.dice.choice([*content.TOPICS[:3], "k", "absent"])})

    def update_config(self) -> Step:
        dice = self.dice
        if dice.random() < 0.25:
            return Step(319)
        chosen = {
            name: dice.choice(["true", "false", "TRUE", "no"]) for name in dice.sample(SWITCHES, dice.choice([1, 2]))
        }
        if dice.random() < 0.2:
            chosen["waitSecondsForService"] = dice.choice(["0", "86400", "soon"])
        text = properties(chosen)
        odd = [
            b"",
            b"# nothing but a comment\n! and another",
            b"no.such.key=1",
            b"configStorePath=/tmp/elsewhere\nenableTopicList=false",
            b"kvConfigPath : /tmp/elsewhere",
            b"rocketmqHome /tmp",
            b"configBlackList=",
            b"enableTopicList=\\u00zz",
            b"enableTopic\\\n  List : false\n",
            b"  enableTopicList\ttr\\u0075e",
        ]
        return Step(318, body=Bytes(text if dice.random() < 0.7 else dice.choice(odd)))

    # Other requests

    def unknown(self) -> Step:
        return Step(
            self.dice.choice([0, 1, 10, 34, 99, 200, 310, 905, 999, 30001, -5, 70000]),
            self.dice.choice([None, {"topic": "@orders"}]),
        )

    def incomplete(self) -> Step:
        """Removes one field or all. Requests that would leave incomplete entries in Apache's tables are not used."""
        dice = self.dice
        step = dice.choice(
            [
                self.route,
                self.member_group,
                self.query_version,
                self.heartbeat,
                self.permission,
                self.read_kv,
                self.delete_kv,
                self.register_topic,
            ]
        )()
        if dice.random() < 0.2:
            return replace(step, ext=None)
        assert step.ext is not None
        missing = dice.choice([*step.ext, "brokerId"])
        return replace(step, ext={key: value for key, value in step.ext.items() if key != missing})


def with_its_own_type(value: object) -> object:
    """Fields are strings, but numbers and booleans are accepted as such."""
    if isinstance(value, str) and value in {"true", "false"}:
        return value == "true"
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
