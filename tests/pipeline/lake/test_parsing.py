"""Entries of every kind and with every mistake, in one Spark job for changes and one for pulses."""

import base64
import json
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from routebook_pipeline.history import ERA_SHIFT
from routebook_pipeline.kinds import BY_TITLE, FORMER_TITLES, KNOWN_FORMAT, Kind
from routebook_pipeline.lake.parsing import PARSERS, Batch, parse, with_positions
from routebook_pipeline.schemas import CHANGES, PULSES, SOURCE
from routebook_pipeline.source.decoding import CHANGE_FORMAT, GAPS_FORMAT, EntryFormat, decode

ERA = 3
MS = 1_700_000_000_000
GROUP = {"cluster": "c1", "broker": "b1"}
SEAT = {**GROUP, "id": 1, "addr": "127.0.0.1:10911"}
QUEUE = {"t": "T", "r": 4, "w": 8, "p": 6, "f": 0}
WRITTEN = {"actor": "worker-1", "source": "127.0.0.9:40000"}
PAUSED = "expiry-paused"


def entry(kind: Any, **fields: Any) -> bytes:
    return json.dumps({"v": 1, "kind": kind, **fields}, separators=(",", ":")).encode()


class Readable(NamedTuple):
    payload: bytes
    rows: list[dict[str, Any]]
    """The columns that are not null, besides those of every row."""


def queue_row(**other: Any) -> dict[str, Any]:
    values = {"topic": "T", "read_queues": 4, "write_queues": 8, "perm": 6, "flags": 0, "removed": False}
    return {**GROUP, **values, **other}


SEAT_ROW = {**GROUP, "broker_id": 1, "addr": "127.0.0.1:10911"}
READABLE = {
    "registered": Readable(
        entry(
            "broker-registered",
            **SEAT,
            **WRITTEN,
            incarnation="i1",
            first=True,
            zone="z",
            acting=False,
            ha="127.0.0.1:10912",
            timeout_ms=120_000,
            queues=[QUEUE, {"t": "Ü", "x": 1}],
        ),
        [
            {**SEAT_ROW, **WRITTEN, "incarnation": "i1", "first": True, "zone": "z", "acting": False,
             "timeout_ms": 120_000},
            queue_row(),
            {**GROUP, "topic": "Ü", "removed": True},
        ],
    ),
    "changed": Readable(entry("broker-changed", **SEAT), [SEAT_ROW]),
    "removed": Readable(
        entry(
            "broker-removed",
            **SEAT,
            cause="connection-lost",
            last_heartbeat_ms=MS - 5,
            timeout_ms=1,
            lost_ms=MS - 4,
            group_removed=True,
        ),
        [
            {**SEAT_ROW, "cause": "connection-lost", "last_heartbeat_ms": MS - 5, "timeout_ms": 1, "lost_ms": MS - 4,
             "group_removed": True}
        ],
    ),
    "group": Readable(entry("group-changed", **GROUP, clusters=["c1"], zone="", acting=True),
                      [{**GROUP, "zone": "", "acting": True}]),
    "queues": Readable(
        entry("queues-changed", **GROUP, cause="register-topic", queues=[QUEUE]),
        [{**GROUP, "cause": "register-topic"}, queue_row()],
    ),
    "permission": Readable(
        entry("write-permission", **GROUP, rule="clear-write", perm=2, touched=7, cause="operator"),
        [{**GROUP, "rule": "clear-write", "perm": 2, "touched": 7, "cause": "operator"}],
    ),
    "kv": Readable(entry("kv-put", namespace="n", key="k", sha256="00"), [{}]),
    "kv gone": Readable(entry("kv-deleted", namespace="n", key="k"), [{}]),
    "setting": Readable(entry("settings-changed", key="k", value=5), [{}]),
    "identity": Readable(entry("identity-changed", name="ci", role="admin", cause="created"), [{"cause": "created"}]),
    "held": Readable(entry("expiry-held", brokers=3), [{}]),
    "released": Readable(entry("expiry-released", brokers=["b1"], actor="op"), [{"actor": "op"}]),
    PAUSED: Readable(entry(PAUSED, from_ms=5, to_ms=9), [{"from_ms": 5, "to_ms": 9}]),
    "blind, as older services wrote it": Readable(
        entry("blind", from_ms=5, to_ms=9), [{"kind": PAUSED, "code": 52, "from_ms": 5, "to_ms": 9}]
    ),
    "baseline begins": Readable(entry("baseline-begin"), [{}]),
    "baseline seat": Readable(entry("baseline-seat", **SEAT, queues=None), [SEAT_ROW]),
    "baseline queues": Readable(entry("baseline-queues", **GROUP, queues=[QUEUE]), [GROUP, queue_row()]),
    "baseline ends": Readable(entry("baseline-end", entries=4), [{}]),
    "last name wins": Readable(b'{"v":1,"kind":7,"kind":"expiry-paused","from_ms":1,"from_ms":2,"to_ms":3}',
                               [{"from_ms": 2, "to_ms": 3}]),
    "unknown fields": Readable(entry(PAUSED, from_ms=1, to_ms=2, perm="of another kind", new={"x": [1]}, To_ms="case"),
                               [{"from_ms": 1, "to_ms": 2}]),
    "names that look like values": Readable(
        entry("group-changed", cluster="5", broker="true"), [{"cluster": "5", "broker": "true"}]
    ),
    "text that looks like a field": Readable(
        entry("group-changed", **GROUP, zone='"kind": 5'), [{**GROUP, "zone": '"kind": 5'}]
    ),
    "white space": Readable(b' {"v":1, "kind" : "baseline-begin"}\n', [{}]),
    "long": Readable(
        entry("queues-changed", **GROUP, queues=[{**QUEUE, "t": f"{n:04}{'x' * 200}"} for n in range(1000)]),
        [GROUP, *(queue_row(topic=f"{n:04}{'x' * 200}") for n in range(1000))],
    ),
}  # fmt: skip

UNREADABLE = {
    "utf8": [b"\xff", b'{"v":1,"kind":"baseline-begin","actor":"\xc3"}'],
    "json": [
        b"", b"null", b"[]", b"5", b'"text"', b"[" + entry("baseline-begin") + b"]", entry("baseline-begin")[:-1],
        entry("baseline-begin") + b" more", entry("baseline-begin") * 2,
        entry("baseline-begin") + b"," + entry("baseline-begin"), b"{'v':1,'kind':'baseline-begin'}",
        b'{"v":1,"kind":"baseline-begin",}',
    ],
    "newer": [b'{"v":2,"kind":"baseline-begin"}', b'{"v":2,"kind":{},"cluster":5}', b'{"v":3}'],
    "kind": [
        b'{"v":1}', entry(None), entry(7), entry([PAUSED]), entry(True),
        b'{"v":1,"Kind":"expiry-paused"}',
    ],
    "field:v": [
        b"{}", b'{"kind":"expiry-paused"}',
        b'{"v":"1","kind":"expiry-paused"}',
        b'{"v":1.0,"kind":"expiry-paused"}',
        b'{"V":1,"kind":"expiry-paused"}',
        b'{"v":2147483648,"kind":"expiry-paused"}',
        b'{"v":null,"kind":"expiry-paused"}',
    ],
    "field:id": [
        entry("broker-registered", **GROUP, addr="a"), entry("broker-registered", **{**SEAT, "id": "1"}),
        entry("broker-registered", **{**SEAT, "id": None}), entry("broker-registered", **{**SEAT, "id": 1 << 63}),
        entry("broker-registered", **{**SEAT, "id": 1.5}),
    ],
    "field:cluster": [entry("group-changed", broker="b"), entry("group-changed", cluster=5, broker="b"),
                      entry("broker-removed", cause="expired")],
    "field:broker": [entry("group-changed", cluster="c", broker={"name": "b"}),
                     entry("group-changed", cluster="c", Broker="b")],
    "field:addr": [entry("broker-changed", **{**SEAT, "addr": None}), entry("baseline-seat", **{**SEAT, "addr": 1})],
    "field:cause": [entry("broker-removed", **SEAT), entry(PAUSED, from_ms=1, to_ms=2, cause=5)],
    "field:first": [entry("broker-registered", **SEAT, first=1), entry("broker-registered", **SEAT, first="true")],
    "field:zone": [entry("broker-registered", **SEAT, zone=5)],
    "field:timeout_ms": [entry("broker-registered", **SEAT, timeout_ms="x")],
    "field:perm": [entry("write-permission", **GROUP, rule="set")],
    "field:rule": [entry("write-permission", **GROUP, perm=6)],
    "field:to_ms": [entry(PAUSED, from_ms=1), entry(PAUSED, from_ms=1, to_ms=10**20)],
    "field:key": [entry("settings-changed")],
    "field:namespace": [entry("kv-put", key="k", namespace=1)],
    "field:queues": [
        entry("queues-changed", **GROUP), entry("queues-changed", **GROUP, queues={}),
        entry("queues-changed", **GROUP, queues=[5]), entry("queues-changed", **GROUP, queues=[None]),
        entry("queues-changed", **GROUP, queues=[{"t": "T"}]), entry("queues-changed", **GROUP, queues=[{"x": 1}]),
        entry("queues-changed", **GROUP, queues=[QUEUE, {**QUEUE, "t": 5}]),
        entry("broker-changed", **SEAT, queues=[{**QUEUE, "r": "4"}]),
        entry("broker-changed", **SEAT, queues=[{"t": "T", "x": "yes"}]), entry("broker-changed", **SEAT, queues="T"),
    ],
}  # fmt: skip

UNKNOWN = [entry("broker-praised", **SEAT, **WRITTEN), entry("hole", from_version=1, to_version=9),
           entry("unreadable"), entry("")]  # fmt: skip


class Case(NamedTuple):
    name: str
    payload: bytes
    expected: list[dict[str, Any]]


def raw(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def cases() -> list[Case]:
    made = []
    for name, readable in READABLE.items():
        kind = json.loads(readable.payload)["kind"]
        common = {"kind": kind, "code": int((BY_TITLE | FORMER_TITLES)[kind]), "v": 1}
        made.append(Case(name, readable.payload, [{**common, **row} for row in readable.rows]))
    for reason, payloads in UNREADABLE.items():
        common = {"kind": "unreadable", "code": 99, "cause": reason}
        made += [
            Case(f"{reason} {at}", payload, [{**common, "raw": raw(payload)}]) for at, payload in enumerate(payloads)
        ]
    for payload in UNKNOWN:
        fields = json.loads(payload)
        common = {name: fields[name] for name in ("v", "kind", "actor", "source") if name in fields}
        made.append(Case(f"unknown {fields['kind']}", payload, [{**common, "code": 0, "raw": raw(payload)}]))
    return made


KEYS = {"seat_key", "group_key", "queue_key"}


def source_frame(
    spark: SparkSession, source: list[tuple[str, bytes]], entry_format: EntryFormat, *, decoded: bool
) -> DataFrame:
    """The rows of the source, as it reads them with the option `decoded`. Each entry is decoded on its own: an entry
    that Arrow refuses would keep those beside it from being decoded.
    """
    if not decoded:
        return spark.createDataFrame(source, SOURCE)
    rows = []
    for entry_id, payload in source:
        (kept,), (fields,) = (column.to_pylist() for column in decode([payload], entry_format))
        assert (kept is None) == (fields is not None)
        rows.append((entry_id, kept, fields))
    assert any(fields for _, _, fields in rows), "nothing was decoded by Arrow"
    return spark.createDataFrame(rows, entry_format.source_schema)


@pytest.fixture(scope="module", params=[False, True], ids=["by Spark", "by Arrow"])
def parsed(request: pytest.FixtureRequest, spark: SparkSession) -> dict[int, list[Row]]:
    """The rows of each case, by version, from a Spark job for changes."""
    source = [(f"{MS + version}-{version}", case.payload) for version, case in enumerate(cases(), start=1)]
    source.append((f"hole:{MS}-100000", b'{"v":1,"kind":"hole","from_version":100000,"to_version":100007}'))
    frame = source_frame(spark, source, CHANGE_FORMAT, decoded=request.param)
    # Two partitions, since a rule that depends on the partition would show here.
    rows = parse(frame.repartition(2), "ns", ERA, 77)
    assert rows.schema.simpleString() == CHANGES.simpleString()
    by_version: dict[int, list[Row]] = {}
    for row in sorted(rows.collect(), key=lambda row: (row.version, row.row)):
        by_version.setdefault(row.version, []).append(row)
    return by_version


@pytest.mark.parametrize(
    ("version", "case"), list(enumerate(cases(), start=1)), ids=lambda case: getattr(case, "name", "")
)
def test_an_entry_becomes_the_expected_rows(parsed: dict[int, list[Row]], version: int, case: Case) -> None:
    of_every_row = {"ns": "ns", "era": ERA, "version": version, "ord": ERA * ERA_SHIFT + version, "ms": MS + version,
                  "ingested_ms": 77}  # fmt: skip
    found = [
        {name: value for name, value in row.asDict().items() if value is not None and name not in KEYS}
        for row in parsed[version]
    ]
    if case.expected[0]["code"] == Kind.UNREADABLE:
        found[0].pop("v", None)
    assert found == [{**of_every_row, "row": at, **row} for at, row in enumerate(case.expected)]


def test_a_hole_becomes_a_row(parsed: dict[int, list[Row]]) -> None:
    (row,) = parsed[100000]
    assert (row.kind, row.code, row.from_version, row.to_version, row.ms, row.v) == (
        "hole",
        90,
        100000,
        100007,
        MS,
        None,
    )
    assert row.raw is None


def test_a_key_is_null_exactly_where_its_names_are(parsed: dict[int, list[Row]]) -> None:
    rows = [row for found in parsed.values() for row in found]
    for row in rows:
        has_group = row.cluster is not None and row.broker is not None
        assert (row.group_key is not None) == has_group
        assert (row.seat_key is not None) == (has_group and row.broker_id is not None)
        assert (row.queue_key is not None) == (row.topic is not None)
    named = {(row.cluster, row.broker, row.broker_id): row.seat_key for row in rows if row.seat_key is not None}
    assert len(set(named.values())) == len(named)


def pulse(**fields: Any) -> bytes:
    rows = [{"c": "c1", "b": "b1", "i": 0, "n": 3, "max": 31_000, "h": [[60, 2], [66, 1]]}]
    return json.dumps(
        {"v": 1, "kind": "gaps", "worker": "w", "from_ms": 1, "to_ms": 2, "rows": rows, **fields}
    ).encode()


@pytest.mark.parametrize("decoded", [False, True], ids=["by Spark", "by Arrow"])
def test_heartbeat_gaps_become_a_row_for_each_bucket(spark: SparkSession, *, decoded: bool) -> None:
    seat = {"c": "c1", "b": "b2", "i": 1, "n": 1, "max": 5, "h": [[0, 1]]}
    payloads = [
        pulse(),
        pulse(rows=[seat, {**seat, "b": "b3", "h": []}, {**seat, "b": "b4", "h": [[5], [6, 7]]}]),
        pulse(rows=[{**seat, "b": 5}]), pulse(rows=[{**seat, "n": "1"}]), pulse(rows=[5]), pulse(worker=None),
        pulse(v=KNOWN_FORMAT + 1), pulse(kind="other"), b"", b"\xff", pulse(rows=[{**seat, "h": [[1 << 40, 1]]}]),
        pulse(rows=[]),
    ]  # fmt: skip
    source = [(f"{MS}-{version}", payload) for version, payload in enumerate(payloads, start=1)]
    source.append((f"hole:{MS}-50", b'{"v":1,"kind":"hole","from_version":50,"to_version":51}'))
    parser = PARSERS["pulses"]
    validated = parser.validate(with_positions(source_frame(spark, source, GAPS_FORMAT, decoded=decoded)), KNOWN_FORMAT)
    rows = parser.to_rows(validated, Batch("ns", ERA, 77))
    assert rows.schema.simpleString() == PULSES.simpleString()
    found = [(row.version, row.broker, row.broker_id, row.bucket, row["count"], row.max_ms) for row in rows.collect()]
    assert found == [
        (1, "b1", 0, 60, 2, 31_000),
        (1, "b1", 0, 66, 1, 31_000),
        (2, "b2", 1, 0, 1, 5),
        (2, "b4", 1, 6, 7, 5),
        (11, "b2", 1, None, 1, 5),
    ]
