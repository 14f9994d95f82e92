"""What people see: each reading command in a pseudo-terminal of 80 and of 200 columns."""

import pytest
from rich.cells import cell_len

from tests.cli.terminal import run_in_terminal
from tests.runtime.running import Running

GROUPS = 9


@pytest.fixture(scope="module")
def fleet(service: Running) -> str:
    """The cluster of a fleet with more names than a line has room for."""
    cluster = "production-north"
    for number in range(GROUPS):
        body = {
            "address": f"127.0.0.{11 + number}:10911",
            "timeout_ms": 3_600_000,
            "topics": {"orders-of-the-shop": {}, "主题": {"read_queues": 4, "write_queues": 4}},
        }
        service.put(f"/v1/clusters/{cluster}/brokers/broker-north-{number}/0", body).raise_for_status()
    return cluster


def in_terminal(service: Running, columns: int, *words: str) -> list[str]:
    """The lines that the command shows; a live table returns to the start of its lines."""
    shown = run_in_terminal(*words, "--url", service.http, columns=columns)
    assert shown.code == 0, shown.text
    return shown.text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("command", ["topics", "clusters", "status"])
def test_no_line_is_wider_than_the_terminal(service: Running, fleet: str, command: str, columns: int) -> None:
    lines = in_terminal(service, columns, command)
    assert max(map(cell_len, lines)) <= columns
    if command == "topics":
        (orders,) = [line for line in lines if line.startswith("orders-of-the-shop")]
        assert f"{GROUPS}: broker-north-0, " in orders
        assert orders.rstrip().endswith("…") == (columns == 80)
    assert fleet


def test_a_narrow_terminal_shows_the_most_important_columns_of_a_broker_on_one_line(
    service: Running, fleet: str
) -> None:
    lines = in_terminal(service, 80, "brokers", "--cluster", fleet)
    assert lines[0].split()[:2] == ["BROKER", "ID"]
    assert {"ADDRESS", "HEALTH", "HEARTBEAT", "WRITE"} <= set(lines[0].split())
    assert len(lines) == GROUPS + 1
    assert max(map(cell_len, lines)) <= 80


def test_a_wide_terminal_shows_all_columns_of_a_broker(service: Running, fleet: str) -> None:
    lines = in_terminal(service, 200, "brokers", "--cluster", fleet)
    assert lines[0].split()[-3:] == ["DATA", "VERSION", "WORKER"]
    assert len(lines) == GROUPS + 1


@pytest.mark.parametrize("columns", [80, 200])
def test_a_description_has_one_line_for_each_broker(service: Running, fleet: str, columns: int) -> None:
    lines = in_terminal(service, columns, "describe", "topic", "orders-of-the-shop")
    assert sum(line.startswith("broker-north-") for line in lines) == GROUPS
    assert fleet in "\n".join(lines)


def test_top_draws_its_table_within_the_width(service: Running) -> None:
    lines = in_terminal(service, 80, "top", "--interval", "1s", "--count", "1")
    assert any(line.startswith("WORKER") and "LOOKUPS/S" in line for line in lines)
    assert max(map(cell_len, lines)) <= 80
