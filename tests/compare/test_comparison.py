"""Comparison of two servers: dialect, order and release make no difference, and one cause gives one difference."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from routebook.compare.collecting import CollectOptions
from routebook.compare.differences import Comparison, compare_servers
from routebook.errors import PeerUnavailableError
from routebook.remoting_client import NameServer
from tests.remoting_client.canned_server import CannedServer, broker_data, one_broker, queue_data, route

TIMEOUT_MS = 30_000
"""Timeout of one request. Both servers and the client share this process, which may have to wait for a processor."""


@asynccontextmanager
async def connected(one: CannedServer, other: CannedServer) -> AsyncIterator[tuple[NameServer, NameServer]]:
    async with (
        one.serving() as here,
        other.serving() as there,
        await NameServer.connect(here, timeout_ms=TIMEOUT_MS) as first,
        await NameServer.connect(there, timeout_ms=TIMEOUT_MS) as second,
    ):
        yield first, second


async def compare(one: CannedServer, other: CannedServer, options: CollectOptions | None = None) -> Comparison:
    async with connected(one, other) as servers:
        return await compare_servers(*servers, options or CollectOptions(), recheck_after_s=0)


def rows_of(comparison: Comparison) -> list[tuple[str, str, str | None, object, object]]:
    return [(each.kind, each.name, each.field, each.here, each.there) for each in comparison.differences]


def with_two_brokers() -> CannedServer:
    second = broker_data("broker-b", '{0:"127.0.0.12:10911"}')
    return one_broker(
        cluster_info=(
            f'{{"brokerAddrTable":{{"broker-b":{second},"broker-a":{broker_data()}}},'
            '"clusterAddrTable":{"DefaultCluster":["broker-b","broker-a"]}}'
        ),
        routes={
            "TopicB": route([second], [queue_data("broker-b")]),
            "TopicA": route([second, broker_data()], [queue_data("broker-b"), queue_data()]),
        },
        listings={304: ["broker-b", "broker-a", "DefaultCluster"]},
        members={
            "broker-a": f'{{"brokerMemberGroup":{broker_data()}}}',
            "broker-b": f'{{"brokerMemberGroup":{second}}}',
        },
    )


async def test_equal_servers_are_equal() -> None:
    comparison = await compare(one_broker(), one_broker())
    assert comparison.equal
    assert comparison.transient == 0


async def test_order_dialect_and_absent_defaults_make_no_difference() -> None:
    one, other = with_two_brokers(), with_two_brokers()
    swapped = json.loads(other.routes["TopicA"].replace("{0:", '{"0":'))
    swapped["brokerDatas"].reverse()
    swapped["queueDatas"].reverse()
    for group in swapped["brokerDatas"]:
        group["enableActingMaster"] = False
    other.routes["TopicA"] = json.dumps(swapped)
    assert (await compare(one, other)).equal


async def test_a_server_that_does_not_respond_to_901_is_compared_without_it() -> None:
    comparison = await compare(one_broker(), one_broker(silent={901}))
    assert comparison.equal
    assert comparison.there.declined == {"members of a group (901)": "no answer"}


async def test_each_field_that_differs_is_reported() -> None:
    other = one_broker(routes={"TopicA": route([broker_data()], [queue_data(read=4, perm=4)])})
    assert rows_of(await compare(one_broker(), other)) == [
        ("queues", "TopicA @ broker-a", "perm", 6, 4),
        ("queues", "TopicA @ broker-a", "read", 8, 4),
        ("queues", "TopicA @ broker-a", "write", 8, 4),
    ]


async def test_a_broker_on_one_side_only_is_one_difference() -> None:
    comparison = await compare(with_two_brokers(), one_broker())
    assert rows_of(comparison) == [
        ("broker", "broker-b", None, "cluster DefaultCluster, address 0 127.0.0.12:10911, topics 2", None)
    ]
    assert [found.verdict for found in comparison.differences] == ["only here"]
    assert [one.verdict for one in (await compare(one_broker(), with_two_brokers())).differences] == ["only there"]


async def test_a_topic_on_one_side_only_is_one_difference() -> None:
    more = one_broker()
    more.routes["TopicC"] = route([broker_data()], [queue_data()])
    assert rows_of(await compare(one_broker(), more)) == [("topic", "TopicC", None, None, "on broker-a")]


async def test_an_acting_master_in_one_route_is_a_difference_of_that_route() -> None:
    slave = broker_data(addresses='{1:"127.0.0.12:10911"}', rest=',"enableActingMaster":true')
    info = f'{{"brokerAddrTable":{{"broker-a":{slave}}},"clusterAddrTable":{{"DefaultCluster":["broker-a"]}}}}'
    promoted = slave.replace("{1:", "{0:")

    def server(shown: str) -> CannedServer:
        members = {"broker-a": f'{{"brokerMemberGroup":{slave}}}'}
        return one_broker(cluster_info=info, routes={"TopicA": route([shown], [queue_data(perm=4)])}, members=members)

    ((kind, name, field, here, there),) = rows_of(await compare(server(promoted), server(slave)))
    assert (kind, name, field, there) == ("route of TopicA", "broker-a", None, None)
    assert "address 0 127.0.0.12:10911" in str(here)


async def test_ordered_topics_named_namespaces_and_settings_are_compared() -> None:
    one = one_broker(key_values={"ORDER_TOPIC_CONFIG": {"TopicA": "broker-a:8"}, "N": {"k": "1"}})
    other = one_broker(key_values={"N": {"k": "2"}}, properties="orderMessageEnable=true\nlistenPort=1\n")
    comparison = await compare(one, other, CollectOptions(("ORDER_TOPIC_CONFIG", "N"), settings=True))
    assert rows_of(comparison) == [
        ("key-value", "N/k", "value", "1", "2"),
        ("key-value", "ORDER_TOPIC_CONFIG/TopicA", None, "value broker-a:8", None),
        ("setting", "orderMessageEnable", "value", "false", "true"),
    ]


async def test_static_mappings_and_filters_are_compared() -> None:
    mapping = (
        '{"bname":"broker-a","currIdMap":{%s:0},"dirty":false,"epoch":7,"scope":"__global__","topic":"TopicA",'
        '"totalQueues":4}'
    )

    def server(logical: str, servers: str) -> CannedServer:
        found = route(
            [broker_data()], [queue_data()], f',"topicQueueMappingByBroker":{{"broker-a":{mapping % logical}}}'
        )
        filters = f'"filterServerTable":{{"127.0.0.11:10911":{servers}}}'
        return one_broker(routes={"TopicA": found.replace('"filterServerTable":{}', filters)})

    comparison = await compare(
        server("0", '["127.0.0.1:1","127.0.0.1:2"]'), server('"0"', '["127.0.0.1:2","127.0.0.1:1"]')
    )
    assert comparison.equal
    comparison = await compare(server("0", '["127.0.0.1:1"]'), server("1", '["127.0.0.1:2"]'))
    assert rows_of(comparison) == [
        ("mapping of TopicA", "broker-a", "current_ids", ("0→0",), ("1→0",)),
        ("filters of TopicA", "127.0.0.11:10911", "servers", ("127.0.0.1:1",), ("127.0.0.1:2",)),
    ]


async def test_a_listing_that_contradicts_its_own_server_is_reported() -> None:
    flagged = {"TopicA": route([broker_data()], [queue_data(flags=1)])}
    one = one_broker(routes=flagged, listings={304: ["DefaultCluster", "broker-a"], 311: ["TopicA"]})
    other = one_broker(routes=flagged)
    assert rows_of(await compare(one, other)) == [("listing 311", "TopicA", None, None, "value not listed")]


async def test_declined_requests_are_reported_and_not_compared() -> None:
    other = one_broker(refused={206: (1, "disable"), 224: (1, "disable"), 311: (1, "disable")})
    comparison = await compare(one_broker(), other)
    assert comparison.equal
    assert (105, {"topic": "TopicA", "acceptStandardJsonOnly": "true"}) in other.requests
    assert comparison.there.declined == {
        "list of all topics (206)": "code 1: disable",
        "listing 311": "code 1: disable",
    }


async def test_topics_are_listed_by_cluster_when_the_list_of_all_is_disabled() -> None:
    one = one_broker(refused={206: (1, "disable")}, listings={304: ["DefaultCluster", "broker-a"], 224: ["TopicA"]})
    comparison = await compare(one, one_broker())
    assert comparison.equal
    assert comparison.here.routes.keys() == {"TopicA"}


async def test_an_object_that_differs_only_the_first_time_is_no_difference() -> None:
    class ChangingServer(CannedServer):
        """A server whose broker registers between two requests."""

        def answer(self, code: int, ext: dict[str, str]) -> tuple[int, str, str]:
            if code == 105 and not any(code_before == 105 for code_before, _ in self.requests):
                self.requests.append((code, ext))
                return 0, "", route([broker_data()], [queue_data(perm=4)])
            return super().answer(code, ext)

    changing = one_broker()
    changing.__class__ = ChangingServer
    comparison = await compare(changing, one_broker())
    assert comparison.equal
    assert comparison.transient == 1


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        ({105: (1, "name server not ready")}, "declines request 105"),
        ({106: (3, " request type 106 not supported")}, "declines request 106"),
        ({105: (1500, "please go away")}, "is shutting down"),
    ],
)
async def test_a_server_that_declines_a_required_request_is_unavailable(
    refused: dict[int, tuple[int, str]], why: str
) -> None:
    with pytest.raises(PeerUnavailableError, match=why):
        await compare(one_broker(), one_broker(refused=refused))


async def test_a_request_to_a_busy_server_is_repeated() -> None:
    class BusyServer(CannedServer):
        def answer(self, code: int, ext: dict[str, str]) -> tuple[int, str, str]:
            if code == 105 and not any(code_before == 105 for code_before, _ in self.requests):
                self.requests.append((code, ext))
                return 2, "[OVERLOAD]system busy", ""
            return super().answer(code, ext)

    busy = one_broker()
    busy.__class__ = BusyServer
    assert (await compare(busy, one_broker())).equal


async def test_thousands_of_topics_are_compared() -> None:
    many = {f"Topic{number}": route([broker_data()], [queue_data()]) for number in range(3000)}
    one, other = one_broker(routes=many), one_broker(routes={**many})
    other.routes["Topic1234"] = route([broker_data()], [queue_data(read=4)])
    assert {one.name for one in (await compare(one, other)).differences} == {"Topic1234 @ broker-a"}
