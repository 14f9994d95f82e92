"""`GET /v1/changes`: filters, refusals, paging at a limited cost, and `follow`."""

import asyncio
import json
from typing import Any

import pytest

from routebook.background.change_log import write_refusals
from routebook.http_api.history import parse_position
from routebook.observability.audit import LINES_PER_ADDRESS, MAX_WAITING
from routebook.store import change_search
from routebook.store.change_search import EntryId, Position
from tests.http_api.conftest import Worker, seat


async def changes(worker: Worker, **params: Any) -> list[dict[str, Any]]:
    answer = await worker.http.get("/v1/changes", params={"from" if k == "from_" else k: v for k, v in params.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()["changes"]  # type: ignore[no-any-return]


async def write_some(worker: Worker) -> None:
    """Versions 1 and 2: two brokers; 3: a topic; 4: a setting; then two refusals."""
    await worker.put_broker("a", address="127.0.0.21:10911")
    await worker.put_broker("b", address="127.0.0.22:10911", topics={"T": {}})
    await worker.http.put("/v1/topics/by-hand", json={"queues": {"a": {}}})
    await worker.http.put("/v1/settings/hold_percent", json={"value": "40"})
    for _ in range(2):
        await worker.http.put("/v1/kv/ns/key", json={"value": "v"}, headers={"x-forwarded-for": "10.0.0.1"})
    await worker.http.put(seat("c"), json={"address": "not an address"})
    await write_refusals(worker.registry._namespace, worker.registry.audit)


async def test_refusals_are_among_the_changes(worker: Worker) -> None:
    await write_some(worker)
    found = await changes(worker)
    assert [one["version"] for one in found] == [1, 2, 3, 4, None, None]
    forbidden, invalid = found[4:]
    assert (forbidden["kind"], forbidden["actor"], forbidden["verb"]) == ("refused", "anonymous", "put_kv")
    assert (forbidden["object"], forbidden["count"]) == ("/v1/kv/ns/key", 2)
    assert forbidden["reason"].startswith("token-missing: ")
    assert forbidden["source"].startswith("127.0.0.1:")
    assert (invalid["verb"], invalid["object"]) == ("register_broker", seat("c"))


@pytest.mark.parametrize(
    ("params", "versions"),
    [
        ({"broker": "a"}, [1, 3]),
        ({"broker": "c"}, [None]),
        ({"topic": "by-hand"}, [3]),
        ({"topic": "T"}, [2]),
        ({"cluster": "elsewhere"}, []),
        ({"kind": "settings-changed"}, [4]),
        ({"kind": ["settings-changed", "queues-changed"]}, [3, 4]),
        ({"kind": "refused"}, [None, None]),
        ({"actor": "operator"}, [4]),
        ({"from_": "127.0.0.1", "kind": "settings-changed"}, [4]),
        ({"from_": "127.0.0.2"}, []),
        ({"since": "1", "until": "3"}, [2, 3]),
        ({"since": "10m", "order": "desc", "limit": 3}, [None, None, 4]),
        ({"until": "10m"}, []),
        ({"since": "2020-01-01T00:00:00Z", "kind": "broker-registered"}, [1, 2]),
        ({"until": "2020-01-01T00:00:00+02:00"}, []),
    ],
)
async def test_filters_select_entries(worker: Worker, params: dict[str, Any], versions: list[int | None]) -> None:
    await write_some(worker)
    assert [one["version"] for one in await changes(worker, **params)] == versions


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_neither_repeat_nor_omit_an_entry(worker: Worker, order: str) -> None:
    await write_some(worker)
    whole = await changes(worker, order=order)
    paged, cursor = [], None
    for _ in range(20):
        params = {"order": order, "limit": "1", "cursor": cursor}
        page = (await worker.http.get("/v1/changes", params={k: v for k, v in params.items() if v})).json()
        paged += page["changes"]
        cursor = page["next_cursor"]
        if not page["has_more"]:
            break
    assert paged == whole
    assert len(whole) == 6


async def test_a_cursor_continues_with_what_came_later(worker: Worker) -> None:
    await worker.put_broker("a", address="127.0.0.21:10911")
    cursor = (await worker.http.get("/v1/changes")).json()["next_cursor"]
    await worker.put_broker("b", address="127.0.0.22:10911")
    assert [one["broker"] for one in await changes(worker, cursor=cursor)] == ["b"]


async def test_a_page_reads_a_limited_part_of_the_history(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_search._Budget, "__init__", _small_budget)
    for number in range(30):
        await worker.put_broker(f"b{number}", address=f"127.0.0.{number + 20}:10911")
    page = (await worker.http.get("/v1/changes", params={"broker": "b29"})).json()
    assert (page["changes"], page["has_more"]) == ([], True)
    rest = (await worker.http.get("/v1/changes", params={"broker": "b29", "cursor": page["next_cursor"]})).json()
    assert ([one["version"] for one in rest["changes"]], rest["has_more"]) == ([30], False)


def _small_budget(budget: Any) -> None:
    budget.entries, budget.size, budget.unyielded_bytes = 20, 10**6, 0


@pytest.mark.parametrize(
    "params",
    [
        {"sinc": "1"},
        {"kind": "nonsense"},
        {"since": "yesterday"},
        {"since": "2020-01-01T00:00:00"},
        {"cursor": "1-2"},
        {"limit": "0"},
        {"order": "up"},
        {"follow": "true", "order": "desc"},
    ],
)
async def test_what_is_not_understood_is_refused(worker: Worker, params: dict[str, str]) -> None:
    answer = await worker.http.get("/v1/changes", params=params)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")


async def test_followers_receive_changes_and_refusals(worker: Worker) -> None:
    await worker.put_broker("before", address="127.0.0.20:10911")
    async with worker.http.stream("GET", "/v1/changes", params={"follow": "true"}) as stream:
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith(":")
        await asyncio.sleep(0.2)
        await write_some(worker)
        found: list[dict[str, Any]] = []
        last_id = ""
        async with asyncio.timeout(10):
            async for line in lines:
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: ")))
                if line.startswith("id: "):
                    last_id = line.removeprefix("id: ")
                    if len(found) == 6:
                        break
    assert [one["version"] for one in found] == [2, 3, 4, 5, None, None]
    assert await changes(worker, cursor=last_id) == []


async def test_a_flood_of_refusals_stays_small_and_leaves_the_history_alone(worker: Worker) -> None:
    await worker.put_broker("a", address="127.0.0.21:10911")
    for number in range(MAX_WAITING + 20):
        await worker.http.put(seat("c"), json={"address": f"not an address {number}"})
    await write_refusals(worker.registry._namespace, worker.registry.audit)
    found = await changes(worker, limit=1000)
    assert found[0]["version"] == 1
    assert len(found) <= MAX_WAITING + 2
    assert sum(one["count"] for one in found[1:]) == MAX_WAITING + 20
    assert LINES_PER_ADDRESS["refused"] < MAX_WAITING


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("42", Position(version=42)),
        ("1763475600000-42", Position(id=EntryId(1763475600000, 42))),
        ("10m", Position(ms=400_000)),
        ("2000s", Position(ms=0)),
        ("1970-01-01T00:00:01+00:00", Position(ms=1000)),
    ],
)
def test_a_position_is_a_version_an_id_a_time_or_a_duration(text: str, position: Position) -> None:
    assert parse_position("since", text, now=1000.0) == position
