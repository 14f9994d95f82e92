"""Requests of the remoting port that have to be signed, and what the policy of an identity covers."""

from pathlib import Path
from typing import Any

import pytest

from routebook.listeners.tls import ServerTls, TlsOptions
from routebook.model.identity import Credentials, Identity, Role
from routebook.model.names import Caller
from routebook.protocol.frame import Request
from routebook.protocol.lookup_template import LookupTemplate
from routebook.remoting.permissions import MAX_VERDICTS, sign, signed_text
from tests.listeners.authorities import Authority, replace_file
from tests.remoting.port import BROKER_A, PortUnderTest, registration_body, remoting_port
from tests.support.peers import Answer, Peer
from tests.support.waiting import until

SECRET = "a-secret-of-the-test"
OFF_LOOPBACK = {"bind_address": "0.0.0.0"}
SIGNED = OFF_LOOPBACK | {"remoting_access": "signed"}
BODY = registration_body("TopicA", "TopicB")


async def add_identity(port: PortUnderTest, name: str, role: Role, **policy: Any) -> None:
    identity = Identity(name, role, **{kind: tuple(prefixes) for kind, prefixes in policy.items()})
    credentials = Credentials(access_key=f"key-of-{name}", secret=SECRET)
    await port.worker.registry.identities.create(identity, Caller("test"), credentials=credentials)


async def ask(peer: Peer, name: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    """Sends a request that the identity of this name has signed."""
    fields = {**(ext or {}), "AccessKey": f"key-of-{name}"}
    signature = sign(SECRET, signed_text(fields).encode() + body)
    return await peer.ask(code, fields | {"Signature": signature}, body)


async def test_without_identities_signed_access_refuses_everything(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, **SIGNED) as port, await Peer.connect(port.address) as peer:
        for code in (100, 103, 104, 105, 106, 206, 216, 217, 319, 322, 901, 904):
            answer = await peer.ask(code, BROKER_A | {"topic": "TopicA"}, BODY if code in (103, 322) else b"")
            assert answer.code == 16, code
            assert "signed" in (answer.remark or "")
            assert "docs/security.md" in (answer.remark or "")


async def test_a_signed_lookup_is_answered_and_others_are_refused(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, **SIGNED) as port, await Peer.connect(port.address) as peer:
        await add_identity(port, "broker", Role.BROKER)
        await add_identity(port, "client", Role.READ, topics=["Topic"])
        assert (await ask(peer, "broker", 103, BROKER_A, BODY)).code == 0
        for _ in range(8):  # the later ones match the template
            assert (await ask(peer, "client", 105, {"topic": "TopicA"})).code == 0
            assert (await ask(peer, "client", 105, {"topic": "TopicB"})).code == 0
            assert (await ask(peer, "client", 105, {"topic": "TopicC"})).code == 17
            assert (await ask(peer, "client", 105, {"topic": "Other"})).code == 16
            unsigned = await peer.ask(105, {"topic": "TopicA"})
            assert unsigned.code == 16
            stolen = {"AccessKey": "key-of-client", "topic": "TopicA"}
            of_another_topic = sign(SECRET, signed_text(stolen | {"topic": "TopicB"}).encode())
            assert (await peer.ask(105, stolen | {"Signature": of_another_topic})).code == 16


async def test_a_revoked_identity_is_refused_at_once_on_open_connections(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, **SIGNED) as port, await Peer.connect(port.address) as peer:
        await add_identity(port, "broker", Role.BROKER)
        await add_identity(port, "client", Role.READ)
        await ask(peer, "broker", 103, BROKER_A, BODY)
        for _ in range(6):
            assert (await ask(peer, "client", 105, {"topic": "TopicA"})).code == 0
        await port.worker.registry.identities.revoke("client", Caller("test"))
        assert (await ask(peer, "client", 105, {"topic": "TopicA"})).code == 16
        assert (await ask(peer, "client", 106)).code == 16


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.READ, {105, 106, 206, 224, 304, 901}),
        (Role.BROKER, {103, 104, 105, 106, 206, 224, 304, 322, 901, 904}),
        (Role.OPERATOR, {101, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 319, 322, 327, 901, 904}),
        (Role.ADMIN, {101, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 318, 319, 322, 327, 901, 904}),
    ],
)
async def test_each_role_may_send_its_requests(
    role: Role, allowed: set[int], store_url: str, namespace_name: str
) -> None:
    codes = {101, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 318, 319, 322, 327, 901, 904}
    async with remoting_port(store_url, namespace_name, **SIGNED) as port, await Peer.connect(port.address) as peer:
        await add_identity(port, "someone", role)
        named = BROKER_A | {"cluster": "DefaultCluster", "topic": "TopicA", "namespace": "n", "key": "k"}
        found = set()
        for code in codes:
            answer = await ask(peer, "someone", code, named, BODY if code in (103,) else b"")
            if answer.code != 16:
                found.add(code)
        assert found == allowed


async def test_a_signed_operator_may_change_the_fleet_by_default(store_url: str, namespace_name: str) -> None:
    """`remoting_admin` is not set, and the service listens on more than loopback."""
    async with (
        remoting_port(store_url, namespace_name, **OFF_LOOPBACK) as port,
        await Peer.connect(port.address) as peer,
    ):
        await add_identity(port, "ops", Role.OPERATOR)
        await add_identity(port, "reader", Role.READ)
        assert (await peer.ask(216, {"topic": "TopicA"})).code == 16
        refused = await ask(peer, "reader", 216, {"topic": "TopicA"})
        assert (refused.code, "needs operator" in (refused.remark or "")) == (16, True)
        assert (await ask(peer, "ops", 216, {"topic": "TopicA"})).code == 0
        assert (await ask(peer, "ops", 100, {"namespace": "n", "key": "k", "value": "v"})).code == 0
        (entry,) = [change for change in await port.worker.registry.changes(0, 100) if change.kind.startswith("kv")]
        assert entry.fields["actor"] == "ops"


@pytest.mark.parametrize(
    ("policy", "code", "ext", "expected"),
    [
        ({"topics": ["pay-"]}, 216, {"topic": "pay-1"}, 0),
        ({"topics": ["pay-"]}, 216, {"topic": "other"}, 16),
        ({"topics": ["pay-"]}, 205, {"brokerName": "broker-a"}, 16),
        ({"clusters": ["c1"]}, 216, {"topic": "pay-1", "clusterName": "c1"}, 0),
        ({"clusters": ["c1"]}, 216, {"topic": "pay-1", "clusterName": "c2"}, 16),
        ({"clusters": ["c1"]}, 216, {"topic": "pay-1"}, 16),
        ({"clusters": ["Def"]}, 205, {"brokerName": "broker-a"}, 0),
        ({"clusters": ["c1"]}, 205, {"brokerName": "broker-a"}, 16),
        ({"brokers": ["broker-"]}, 205, {"brokerName": "broker-a"}, 0),
        ({"brokers": ["other-"]}, 327, {"brokerName": "broker-a"}, 16),
        ({"topics": ["pay-"]}, 100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "pay-1", "value": "b:1"}, 0),
        ({"topics": ["pay-"]}, 100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "x", "value": "b:1"}, 16),
        ({"topics": ["pay-"]}, 100, {"namespace": "n", "key": "pay-1", "value": "b:1"}, 16),
        ({"topics": ["pay-"]}, 219, {"namespace": "ORDER_TOPIC_CONFIG"}, 16),
    ],
)
async def test_a_policy_limits_what_an_operator_may_change(
    policy: dict[str, list[str]], code: int, ext: dict[str, str], expected: int, store_url: str, namespace_name: str
) -> None:
    async with (
        remoting_port(store_url, namespace_name, **OFF_LOOPBACK) as port,
        await Peer.connect(port.address) as peer,
    ):
        assert (await peer.ask(103, BROKER_A, BODY)).code == 0
        await add_identity(port, "ops", Role.OPERATOR, **policy)
        answer = await ask(peer, "ops", code, ext)
        assert answer.code == expected, answer
        assert expected == 0 or "ops does not cover" in (answer.remark or "")


async def test_with_broker_identities_a_seat_belongs_to_its_identity(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, **OFF_LOOPBACK) as port,
        await Peer.connect(port.address) as peer,
    ):
        await add_identity(port, "a", Role.BROKER, brokers=["broker-a"])
        await add_identity(port, "b", Role.BROKER, brokers=["broker-b"])
        assert (await ask(peer, "a", 103, BROKER_A, BODY)).code == 0
        broker_b = BROKER_A | {"brokerName": "broker-b"}
        attacks = {
            "another seat": (103, BROKER_A | {"brokerAddr": "127.0.0.66:10911"}, BODY),
            "the address of another broker": (103, broker_b, BODY),
            "an unregistration": (104, BROKER_A, b""),
            "an unregistration of the address under another name": (104, broker_b, b""),
            "a heartbeat": (904, BROKER_A, b""),
            "a heartbeat under another name": (904, broker_b, b""),
            "a query": (322, BROKER_A, b""),
        }
        before = port.worker.replica.version
        for what, (code, ext, body) in attacks.items():
            assert (await ask(peer, "b", code, ext, body)).code == 16, what
            assert (await peer.ask(code, ext, body)).code == 16, f"{what}, unsigned"
        assert port.worker.replica.version == before
        assert (await ask(peer, "a", 904, BROKER_A)).code == 0
        assert (await peer.ask(105, {"topic": "TopicA"})).code == 0
        assert (await ask(peer, "a", 104, BROKER_A)).code == 0
        await until(lambda: not port.worker.replica.view.instances)


async def test_a_repeated_signed_lookup_is_neither_parsed_nor_checked_again(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remoting_port(store_url, namespace_name, **SIGNED) as port, await Peer.connect(port.address) as peer:
        await add_identity(port, "broker", Role.BROKER)
        await ask(peer, "broker", 103, BROKER_A, BODY)
        for _ in range(4):
            assert (await ask(peer, "broker", 105, {"topic": "TopicA"})).code == 0
        checked = 0

        def count(*_arguments: object) -> bool:
            nonlocal checked
            checked += 1
            return True

        permissions = port.server.port.permissions
        monkeypatch.setattr(permissions, "allows_lookup", count)
        monkeypatch.setattr(permissions, "refuse_lookup", count)
        monkeypatch.setattr("routebook.remoting.permissions.time.monotonic", lambda: 0.0)
        for _ in range(50):
            assert (await ask(peer, "broker", 105, {"topic": "TopicA"})).code == 0
        assert checked == 0


async def test_remembered_verdicts_are_bounded(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, **SIGNED) as port, await Peer.connect(port.address) as peer:
        await add_identity(port, "client", Role.READ)
        permissions = port.server.port.permissions
        example = Request(105, 0, {"topic": "1", "AccessKey": "key-of-client", "Signature": "1"})
        templates = [LookupTemplate(example, lambda _chunk, _at: [], None) for _ in range(3)]
        for number in range(MAX_VERDICTS + 50):
            name = f"Topic-{number}"
            signature = sign(SECRET, f"key-of-client{name}".encode()).encode()
            template = templates[number % 3]
            permissions.verdicts(template)
            assert permissions.allows_lookup(template, name, signature)
            assert sum(len(permissions.verdicts(one)) for one in templates) <= MAX_VERDICTS
        assert (await ask(peer, "client", 105, {"topic": "TopicA"})).code == 17


async def test_a_topic_is_registered_by_an_identity_that_covers_its_broker(store_url: str, namespace_name: str) -> None:
    """217. An identity need not use the connection of the registration."""
    queues = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
    async with (
        remoting_port(store_url, namespace_name, **OFF_LOOPBACK) as port,
        await Peer.connect(port.address) as broker,
        await Peer.connect(port.address) as other,
    ):
        await add_identity(port, "a", Role.BROKER, brokers=["broker-a"])
        await add_identity(port, "b", Role.BROKER, brokers=["broker-b"])
        await ask(broker, "a", 103, BROKER_A, BODY)
        assert (await other.ask(217, {"topic": "TopicC"}, queues)).code == 16
        assert (await ask(other, "b", 217, {"topic": "TopicC"}, queues)).code == 16
        assert (await other.ask(105, {"topic": "TopicC"})).code == 17
        assert (await ask(other, "a", 217, {"topic": "TopicC"}, queues)).code == 0
        assert (await other.ask(105, {"topic": "TopicC"})).code == 0


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({}, 0),
        ({"brokers": ["broker-"], "topics": ["Topic"], "clusters": ["Default"]}, 0),
        ({"brokers": ["other-"]}, 16),
        ({"topics": ["pay-"]}, 16),
        ({"clusters": ["other"]}, 16),
    ],
)
async def test_an_operator_registers_topics_within_its_policy(
    policy: dict[str, list[str]], code: int, store_url: str, namespace_name: str
) -> None:
    queues = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
    async with (
        remoting_port(store_url, namespace_name, **OFF_LOOPBACK) as port,
        await Peer.connect(port.address) as broker,
        await Peer.connect(port.address) as tool,
    ):
        assert (await broker.ask(103, BROKER_A, BODY)).code == 0
        await add_identity(port, "ops", Role.OPERATOR, **policy)
        assert (await ask(tool, "ops", 217, {"topic": "TopicC"}, queues)).code == code
        assert (await broker.ask(217, {"topic": "TopicD"}, queues)).code == 0


async def test_a_client_certificate_is_an_identity(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    service = authority.issue("service")
    tls = ServerTls(
        TlsOptions(
            test_mode=False,
            key_path=str(replace_file(tmp_path / "key.pem", service.key)),
            cert_path=str(replace_file(tmp_path / "cert.pem", service.certificate)),
            auth_client=True,
            need_client_auth="optional",
            trust_path=str(authority.trust),
        )
    )
    await tls.open()
    async with remoting_port(store_url, namespace_name, tls=tls, **SIGNED) as port:
        identity = Identity("brokers", Role.BROKER, brokers=("broker-a",))
        credentials = Credentials(certificate="broker-1")
        await port.worker.registry.identities.create(identity, Caller("test"), credentials=credentials)
        codes = {}
        for name in ("broker-1", "broker-2", ""):
            async with await Peer.connect(port.address) as peer:
                await peer.start_tls(authority.client(authority.issue(name)) if name else authority.client())
                codes[name] = (
                    (await peer.ask(103, BROKER_A, BODY)).code,
                    (await peer.ask(105, {"topic": "TopicA"})).code,
                )
        assert codes == {"broker-1": (0, 0), "broker-2": (16, 16), "": (16, 16)}


async def test_failed_sign_ins_are_limited_by_address(store_url: str, namespace_name: str) -> None:
    limit = {"max_failed_sign_ins_per_minute_per_address": "5"}
    async with (
        remoting_port(store_url, namespace_name, **SIGNED, **limit) as port,
        await Peer.connect(port.address) as signed_in,
        await Peer.connect(port.address) as guesser,
        await Peer.connect(port.address) as late,
    ):
        await add_identity(port, "client", Role.READ)
        assert (await ask(signed_in, "client", 106)).code == 0
        remarks = [(await ask(guesser, "nobody", 106)).remark or "" for _ in range(7)]
        assert ["Too many failed sign-ins" in remark for remark in remarks] == [False] * 5 + [True] * 2
        assert "Too many" in ((await ask(late, "client", 106)).remark or "")
        assert (await ask(signed_in, "client", 106)).code == 0


async def test_lookups_cannot_be_used_for_guesses_beyond_the_limit(store_url: str, namespace_name: str) -> None:
    """Also when they match the template of the connection, and when another key has signed in on it."""
    limit = {"max_failed_sign_ins_per_minute_per_address": "5"}
    async with (
        remoting_port(store_url, namespace_name, **SIGNED, **limit) as port,
        await Peer.connect(port.address) as peer,
    ):
        await add_identity(port, "own", Role.READ)
        await add_identity(port, "other", Role.READ)
        for _ in range(4):
            assert (await ask(peer, "own", 105, {"topic": "TopicA"})).code == 17
        guess = {"topic": "TopicA", "AccessKey": "key-of-other", "Signature": sign("wrong", b"")}
        for _ in range(8):
            assert (await peer.ask(105, guess)).code == 16
        right = await ask(peer, "other", 105, {"topic": "TopicA"})
        assert "Too many failed sign-ins" in (right.remark or "")
        assert (await ask(peer, "own", 105, {"topic": "TopicA"})).code == 17
