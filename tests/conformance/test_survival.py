"""A fleet at work does not notice what happens to its name service: no send fails, no message is lost, and no route is
ever denied.
"""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import addresses, route
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Messages
from tests.conformance.name_services import NameService, RoutebookFleet, everywhere
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

MESSAGES, PAUSE_MS = 800, 20


class Watch:
    """Asks every worker again and again: one that is down may refuse to be asked, none may answer anything else."""

    def __init__(self, fleet: RoutebookFleet, seats: dict[str, dict[str, str]]) -> None:
        self.wrong: list[str] = []
        self.asked = 0
        self._fleet, self._seats = fleet, seats
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for address in self._fleet.each:
                try:
                    found = addresses(address, "DefaultCluster")
                except (OSError, IndexError):
                    continue
                except AssertionError as error:
                    self.wrong.append(str(error))
                    continue
                self.asked += 1
                if found != self._seats:
                    self.wrong.append(f"{time.monotonic():.1f} {address}: {found}")


def _roll(fleet: RoutebookFleet) -> None:
    for worker in fleet.workers:
        worker.restart()


def _restart_store(fleet: RoutebookFleet) -> None:
    fleet.store.stop()
    fleet.store.start()


def _lose_store(fleet: RoutebookFleet) -> None:
    fleet.store.stop()
    assert fleet.data_dir
    shutil.rmtree(fleet.data_dir)
    fleet.store.start()


def _restart_balancer(fleet: RoutebookFleet) -> None:
    fleet.balancer.restart()


@pytest.mark.parametrize("happens", [_roll, _restart_store, _lose_store, _restart_balancer])
def test_a_fleet_at_work_does_not_notice(
    happens: Callable[[RoutebookFleet], None],
    release: Release,
    name_service: NameService,
    brokers: tuple[Broker, Broker],
    tmp_path: Path,
) -> None:
    if not isinstance(name_service, RoutebookFleet):
        pytest.skip("needs Routebook's parts")
    fleet = name_service
    name = happens.__name__.strip("_").replace("_", "-")
    seats = {broker.name: {"0": broker.address} for broker in brokers}
    with Messages(release("5.5.0"), tmp_path, fleet.address, poll_ms=1000) as peer, Watch(fleet, seats) as watch:
        assert "failures 0" in peer.ask(f"send at-work-{name} 0 20")
        assert peer.ask(f"subscribe at-work-{name} at-work-{name}") == "subscribed"
        peer.tell(f"send at-work-{name} 20 {MESSAGES} {PAUSE_MS}")
        peer.read("sent 100")
        since = time.monotonic()
        happens(fleet)
        sent = peer.read()[-1]
        assert "failures 0" in sent
        assert peer.ask(f"await at-work-{name} {MESSAGES}").startswith(f"got {MESSAGES} ")
        for broker in brokers:
            wait_until(lambda name=broker.name: _registered(fleet, name, since), f"{broker.name} registers")  # type: ignore[misc]
        # And it is not a museum: what is new gets in.
        assert "sent 20 failures 0" in peer.ask(f"send after-{name} 0 20")
        everywhere(fleet, lambda address: route(address, f"after-{name}"), "a new topic")
        everywhere(fleet, lambda address: route(address, f"at-work-{name}"), "the topic")
    assert not watch.wrong, f"{len(watch.wrong)} of {watch.asked}: {watch.wrong[:5]}"
    assert watch.asked


def _registered(fleet: RoutebookFleet, broker: str, since: float) -> bool:
    answers = [fleet.log.answer_to(frame) for frame in fleet.log.of_broker(broker, 103, since=since)]
    return any(answer and answer.code == 0 for answer in answers)
