"""A master and a slave with acting masters enabled, with both kinds of heartbeats: 322 and 105, or 904 and 901."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import addresses, ask, route
from tests.conformance.java_processes import Broker
from tests.conformance.name_services import NameService, wait_everywhere
from tests.conformance.parallel import Outcomes, run_in_parallel
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

KINDS = ("5.5.0-compatible", "5.5.0-own-codes", "5.3.3-compatible", "5.3.3-own-codes")
READ_ONLY, READ_WRITE = 4, 6


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    release: Release,
    name_service: NameService,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcomes]:
    def run(kind: str) -> None:
        _Pair(kind, release(kind.partition("-")[0]), name_service, tmp_path_factory.mktemp(kind)).check()

    with run_in_parallel(request, "kind", run) as outcomes:
        yield outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_slave_is_the_acting_master_while_its_master_is_away(kind: str, outcomes: Outcomes) -> None:
    outcomes[kind].result()


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

    def check(self) -> None:
        with self.master, self.slave:
            both = {"0": self.master.address, "1": self.slave.address}
            self._wait_for_route(both, READ_WRITE)
            self._check_heartbeats()
            notified = self._notified()
            self.master.kill()
            self._wait_for_route({"0": self.slave.address}, READ_ONLY)
            # Brokers see the slave with its own id.
            assert self._members() == {"1": self.slave.address}
            wait_until(lambda: len(self._notified()) > len(notified), "the slave is notified (905)")
            self.master.start()
            self._wait_for_route(both, READ_WRITE)
            wait_until(lambda: self._notified()[-1] == "0", "the slave is notified that its master is back (905)")
            # Each change is notified once, for any number of workers.
            assert self._notified() == [*notified, "1", "0"]
            self.slave.stop()
            self._wait_for_route({"0": self.master.address}, READ_WRITE)

    def _wait_for_route(self, seats: dict[str, str], perm: int) -> None:
        wait_everywhere(self.names, lambda address: addresses(address, self.name) == {self.name: seats}, f"{seats}")
        wait_everywhere(self.names, lambda address: self._perm(address) == perm, f"perm {perm}")

    def _perm(self, address: str) -> int | None:
        """The permission of the topic that each broker creates for its cluster, 7, without the inherit bit."""
        found = route(address, self.name.replace("pair", "cluster-pair"))
        return found["queueDatas"][0]["perm"] & 6 if found else None

    def _notified(self) -> list[str]:
        """The smallest ids of which the slave was notified, from its log."""
        log = self.slave.folder / "logs" / "rocketmqlogs" / "broker.log"
        return re.findall(r"min broker id changed, prev \d+, new (\d+)", log.read_text(errors="replace"))

    def _members(self) -> dict[str, str]:
        answer = ask(self.names.address, 901, {"brokerName": self.name, "clusterName": self.master.cluster})
        assert answer.code == 0, answer
        members: dict[str, str] = answer.json()["brokerMemberGroup"]["brokerAddrs"]
        return members

    def _check_heartbeats(self) -> None:
        """Both brokers send heartbeats every second as one-way requests, and query their group."""
        since = time.monotonic()
        heartbeat, query = (322, 105) if self.is_compatible else (904, 901)
        for broker in (self.master, self.slave):

            def has_sent_heartbeats(address: str = broker.address) -> bool:
                sent = self.names.log.of_broker(self.name, heartbeat, since=since)
                return len([frame for frame in sent if frame.ext["brokerAddr"] == address]) >= 3

            wait_until(has_sent_heartbeats, f"{heartbeat} of {broker.address}")
        assert all(frame.is_oneway for frame in self.names.log.of_broker(self.name, heartbeat, since=since))

        def queries_group() -> bool:
            queries = self.names.log.requests(query, since=since)
            names = [frame.ext.get("topic", "") + frame.ext.get("brokerName", "") for frame in queries]
            return any(name.endswith(self.name) for name in names)

        wait_until(queries_group, "a broker queries its group")
