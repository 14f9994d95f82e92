"""A name that does not exist gets the nearest ones that do, and the command that lists all of them."""

import pytest

from tests.cli.conftest import CommandLine
from tests.runtime.running import Running


@pytest.fixture
def orders(service: Running) -> str:
    body = {
        "address": "127.0.0.21:10911",
        "timeout_ms": 3_600_000,
        "topics": {"typo-orders": {"read_queues": 8, "write_queues": 8}, "own": {"read_queues": 1, "perm": 1}},
    }
    service.put("/v1/clusters/typo-cluster/brokers/typo-broker/0", body).raise_for_status()
    return "typo-orders"


@pytest.mark.parametrize(
    ("arguments", "nearest", "listing"),
    [
        (("route", "typo-order"), "typo-orders", "routebook topics"),
        (("describe", "topic", "typo-ordres"), "typo-orders", "routebook topics"),
        (("describe", "broker", "typo-brokr"), "typo-broker", "routebook brokers"),
        (("delete-topic", "tipo-orders", "--dry-run"), "typo-orders", "routebook topics"),
        (("delete-topic", "tipo-orders", "--yes"), "typo-orders", "routebook topics"),
        (("write-permission", "typo-broke", "off", "--yes"), "typo-broker", "routebook brokers"),
        (("remove-broker", "typo-broke", "--id", "0", "--dry-run"), "typo-broker", "routebook brokers"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistyped_name_gets_the_nearest_one(
    arguments: tuple[str, ...], nearest: str, listing: str, routebook: CommandLine, orders: str
) -> None:
    ended = routebook(*arguments)
    assert ended.code == 1
    assert f"Did you mean {nearest!r}" in ended.err
    assert f"`{listing}` lists all of them." in ended.err


def test_a_name_like_no_other_gets_no_suggestion(routebook: CommandLine, orders: str) -> None:
    ended = routebook("route", "zzzzzzzz")
    assert "Did you mean" not in ended.err
    assert "`routebook topics` lists all of them." in ended.err


def test_a_name_that_exists_elsewhere_is_not_suggested_for_itself(routebook: CommandLine, orders: str) -> None:
    ended = routebook("delete-topic", orders, "--cluster", "no-such-cluster", "--yes")
    assert ended.code == 1
    assert f"Did you mean {orders!r}" not in ended.err


def test_a_topic_for_the_brokers_own_use_is_no_missing_write_permission(routebook: CommandLine, orders: str) -> None:
    """RocketMQ's brokers register such topics (rmq_sys_SYNC_BROKER_MEMBER): a healthy broker must have no warning."""
    assert "write permission  yes" in routebook("describe", "broker", "typo-broker").out
    assert "may not be written" not in routebook("describe", "broker", "typo-broker").out
    assert routebook("brokers", "-o", "jsonpath={[?(@.name=='typo-broker')].closed_topics}").out == "1\n"


def test_the_answer_of_the_rocketmq_port_is_shown_as_it_is(
    service: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = CommandLine(capsys, f"http://{service.remoting}")("status")
    assert ended.code == 3
    assert "This is the RocketMQ port; HTTP is on port" in ended.err


def test_a_dry_run_that_would_change_nothing_says_so(routebook: CommandLine, orders: str) -> None:
    assert routebook("write-permission", "typo-broker", "on", "--yes").code == 0
    ended = routebook("write-permission", "typo-broker", "on", "--dry-run")
    assert (ended.code, ended.out) == (0, "")
    assert "Nothing would change." in ended.err
