"""Each change of the table is one line in the log: what changed, its value before and after, the cause."""

import logging

import pytest

from routebook.background.change_log import ChangeLog
from routebook.model.broker import BrokerGroup, QueueData
from routebook.observability.audit import Audit
from routebook.observability.metrics import Metrics
from routebook.replica.table import Table
from routebook.store.history import Change
from routebook.store.reads import GroupImage
from tests.reference.build import A, B


@pytest.fixture
def before() -> Table:
    table = Table()
    group = BrokerGroup("broker-a", "east", addresses={0: A})
    queues = {"orders": QueueData(8, 8), "payments": QueueData(4, 4)}
    table.apply_group("broker-a", GroupImage(group, frozenset({"east"}), queues, all_queues=True))
    table.apply_kv("ns", {"key": "secret"})
    return table


def logged(caplog: pytest.LogCaptureFixture, before: Table, kind: str, **fields: object) -> str:
    entry = {"v": 1, "kind": kind, "actor": "worker-1", "source": "127.0.0.1:5", **fields}
    with caplog.at_level(logging.INFO):
        ChangeLog(lambda key, value: "***", Audit(Metrics()), "worker-2").log([Change(1, 7, kind, entry)], before)
    return caplog.messages[-1]


def test_the_worker_that_made_a_change_records_it_in_the_audit(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    change = {"v": 1, "kind": "settings-changed", "actor": "ci", "source": "127.0.0.1:5", "worker": "worker-1"}
    change |= {"port": "http", "verb": "change_setting", "key": "hold_percent", "value": "40", "before": None}
    with caplog.at_level(logging.INFO, "routebook.audit"):
        for worker in ("worker-1", "worker-2"):
            log = ChangeLog(lambda key, value: value, Audit(Metrics()), worker)
            log.log([Change(1, 7, "settings-changed", change)], before)
    records = [vars(record) for record in caplog.records if record.name == "routebook.audit"]
    assert len(records) == 1
    shown = {name: records[0][name] for name in ("outcome", "actor", "source", "port", "verb", "before", "after")}
    assert list(shown.values()) == ["done", "ci", "127.0.0.1:5", "http", "change_setting", "default", "40"]
    assert records[0]["object"] == "settings-changed setting hold_percent"


def seat(**changes: object) -> dict[str, object]:
    return {"cluster": "east", "broker": "broker-a", "id": 0, "addr": A, "zone": None, "acting": False, **changes}


def test_a_new_address_in_a_seat_is_shown_with_the_former_one(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    line = logged(caplog, before, "broker-registered", **seat(addr=B))
    assert line == f"7 broker-registered east/broker-a id 0: {A} → {B} (by worker-1 from 127.0.0.1:5)"


def test_changed_queues_are_shown_with_their_former_values(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    items = [{"t": "orders", "r": 16, "w": 16, "p": 4, "f": 0}, {"t": "new", "r": 1, "w": 1, "p": 6, "f": 0}]
    line = logged(caplog, before, "broker-changed", **seat(queues=items))
    assert "orders [6 8 8 0] → [4 16 16 0], new none → [6 1 1 0]" in line


def test_a_removed_group_is_shown_with_its_number_of_topics(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    line = logged(caplog, before, "broker-removed", **seat(group_removed=True, cause="expired"))
    assert f"{A} → empty; the group and its 2 topics are removed, expired" in line


def test_thousands_of_topics_are_one_line(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    items = [{"t": f"t{n}", "x": 1} for n in range(5000)]
    line = logged(caplog, before, "queues-changed", broker="broker-a", queues=items, cause="delete-topic")
    assert "5000 topics" in line
    assert "and 4997 more, delete-topic" in line
    assert len(line) < 300


def test_key_values_are_not_logged(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    line = logged(caplog, before, "kv-put", namespace="ns", key="key", sha256="0123456789abcdef")
    assert "ns/key: another value → value with sha256 0123456789ab…" in line
    assert "secret" not in line


def test_secret_settings_are_masked(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    before.apply_settings({"some_key": "hidden"})
    assert "some_key: *** → x" in logged(caplog, before, "settings-changed", key="some_key", value="x")


def test_changed_flags_of_a_group_are_shown(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    line = logged(caplog, before, "group-changed", broker="broker-a", zone="z1", acting=True)
    assert "zone, acting master: None, False → z1, True" in line


def test_a_changed_permission_is_shown(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    line = logged(caplog, before, "write-permission", broker="broker-a", rule="clear-write", touched=1, cause="admin")
    assert "broker-a: clear-write on 1 of 2 topics, admin" in line


def test_other_kinds_are_shown_with_all_their_fields(caplog: pytest.LogCaptureFixture, before: Table) -> None:
    assert "expiry: paused for 2 s" in logged(caplog, before, "expiry-paused", from_ms=1, to_ms=2001)
