"""A master and its slave with acting masters on, both ways of keeping in touch: 322 and 105, or 904 and 901."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import addresses, ask, route
from tests.conformance.java_processes import Broker
from tests.conformance.name_services import NameService, everywhere
from tests.conformance.side_by_side import Outcomes, side_by_side
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

KINDS = ("5.5.0-compatible", "5.5.0-own-codes", "5.3.3-compatible", "5.3.3-own-codes")
READ_ONLY, READ_WRITE = 4, 6


@pytest.fixture(scope="module")
def lives(
    request: pytest.FixtureRequest,
    release: Release,
    name_service: NameService,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcomes]:
    def live(kind: str) -> None:
        _Pair(kind, release(kind.partition("-")[0]), name_service, tmp_path_factory.mktemp(kind)).live()

    with side_by_side(request, "kind", live) as outcomes:
        yield outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_slave_acts_while_its_master_is_away(kind: str, lives: Outcomes) -> None:
    lives[kind].result()


class _Pair:
    def __init__(self, kind: str, libraries: Path, name_service: NameService, folder: Path) -> None:
        self.names = name_service
        self.name = f"pair-{kind}".replace(".", "_")
        self.is_compatible = kind.endswith("compatible")
        self.master, self.slave = (
            Broker(
                libraries,
                folder / ("slave" if broker_id else "master"),
                name_service.address,
                self.name,
                broker_id,
                cluster=f"cluster-{self.name}",
                properties={
                    "enableSlaveActingMaster": "true",
                    "compatibleWithOldNameSrv": str(self.is_compatible).lower(),
                },
            )
            for broker_id in (0, 1)
        )

    def live(self) -> None:
        with self.master, self.slave:
            both = {"0": self.master.address, "1": self.slave.address}
            self._becomes(both, READ_WRITE)
            self._keeps_in_touch()
            notified = self._notified()
            self.master.kill()
            self._becomes({"0": self.slave.address}, READ_ONLY)
            members = self._members()
            # Who it is really, for brokers that ask.
            assert members == {"1": self.slave.address}
            wait_until(lambda: len(self._notified()) > len(notified), "the slave hears of it (905)")
            self.master.start()
            self._becomes(both, READ_WRITE)
            wait_until(lambda: self._notified()[-1] == "0", "the slave hears that its master is back (905)")
            # Once each, however many workers there are.
            assert self._notified() == [*notified, "1", "0"]
            self.slave.stop()
            self._becomes({"0": self.master.address}, READ_WRITE)

    def _becomes(self, seats: dict[str, str], perm: int) -> None:
        everywhere(self.names, lambda address: addresses(address, self.name) == {self.name: seats}, f"{seats}")
        everywhere(self.names, lambda address: self._perm(address) == perm, f"perm {perm}")

    def _perm(self, address: str) -> int | None:
        """Of the cluster's own topic, which every broker makes with permission 7: without the inherit bit, as a
        topic of users has it."""
        found = route(address, self.name.replace("pair", "cluster-pair"))
        return found["queueDatas"][0]["perm"] & 6 if found else None

    def _notified(self) -> list[str]:
        """The lowest ids that it was told, as its log has them."""
        log = self.slave.folder / "logs" / "rocketmqlogs" / "broker.log"
        return re.findall(r"min broker id changed, prev \d+, new (\d+)", log.read_text(errors="replace"))

    def _members(self) -> dict[str, str]:
        answer = ask(self.names.address, 901, {"brokerName": self.name, "clusterName": self.master.cluster})
        assert answer.code == 0, answer
        members: dict[str, str] = answer.json()["brokerMemberGroup"]["brokerAddrs"]
        return members

    def _keeps_in_touch(self) -> None:
        """Once a second, without an answer; every heartbeat of each broker arrives."""
        since = time.monotonic()
        heartbeat, question = (322, 105) if self.is_compatible else (904, 901)
        for broker in (self.master, self.slave):

            def beats(address: str = broker.address) -> bool:
                sent = self.names.log.of_broker(self.name, heartbeat, since=since)
                return len([frame for frame in sent if frame.ext["brokerAddr"] == address]) >= 3

            wait_until(beats, f"{heartbeat} of {broker.address}")
        assert all(frame.is_oneway for frame in self.names.log.of_broker(self.name, heartbeat, since=since))

        def asks() -> bool:
            asked = self.names.log.requests(question, since=since)
            words = [frame.ext.get("topic", "") + frame.ext.get("brokerName", "") for frame in asked]
            return any(word.endswith(self.name) for word in words)

        wait_until(asks, "it asks for its group")
