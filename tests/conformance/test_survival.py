"""Restarts and losses in the name service affect no working fleet: no send fails, no message is lost, and every lookup
has the full route.
"""

import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import addresses, route
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Messages
from tests.conformance.name_services import NameService, RoutebookFleet, wait_everywhere
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

MESSAGES, PAUSE_MS = 800, 20


class LookupMonitor:
    """Looks up a route at every worker all the time. A worker may refuse, but not give another answer."""

    def __init__(self, fleet: RoutebookFleet, seats: dict[str, dict[str, str]]) -> None:
        self.wrong: list[str] = []
        self.lookups = 0
        self._fleet, self._seats = fleet, seats
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookups")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for address in self._fleet.each:
                try:
                    found = addresses(address, "DefaultCluster")
                except (OSError, IndexError):
                    continue
                except AssertionError as error:
                    # A worker that drains asks for another connection (GO_AWAY), which clients then open.
                    if not str(error).startswith("1500: "):
                        self.wrong.append(str(error))
                    continue
                self.lookups += 1
                if found != self._seats:
                    self.wrong.append(f"{time.monotonic():.1f} {address}: {found}")


def _restart_workers(fleet: RoutebookFleet) -> None:
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


@pytest.mark.parametrize("event", [_restart_workers, _restart_store, _lose_store, _restart_balancer])
def test_a_working_fleet_is_not_affected(
    event: Callable[[RoutebookFleet], None],
    release: Release,
    name_service: NameService,
    brokers: tuple[Broker, Broker],
    tmp_path: Path,
) -> None:
    if not isinstance(name_service, RoutebookFleet):
        pytest.skip("needs Routebook's workers and store")
    fleet = name_service
    name = event.__name__.strip("_").replace("_", "-")
    seats = {broker.name: {"0": broker.address} for broker in brokers}
    with (
        Messages(release("5.5.0"), tmp_path, fleet.address, poll_ms=1000) as peer,
        LookupMonitor(fleet, seats) as monitor,
    ):
        assert "failures 0" in peer.ask(f"send working-{name} 0 20")
        assert peer.ask(f"subscribe working-{name} working-{name}") == "subscribed"
        peer.send(f"send working-{name} 20 {MESSAGES} {PAUSE_MS}")
        peer.read("sent 100")
        since = time.monotonic()
        event(fleet)
        sent = peer.read()[-1]
        assert "failures 0" in sent
        assert peer.ask(f"await working-{name} {MESSAGES}").startswith(f"got {MESSAGES} ")
        for broker in brokers:
            wait_until(partial(_has_registered, fleet, broker.name, since), f"{broker.name} registers")
        # New topics are registered as well.
        assert "sent 20 failures 0" in peer.ask(f"send after-{name} 0 20")
        wait_everywhere(fleet, lambda address: route(address, f"after-{name}"), "a new topic")
        wait_everywhere(fleet, lambda address: route(address, f"working-{name}"), "the topic")
    assert not monitor.wrong, f"{len(monitor.wrong)} of {monitor.lookups}: {monitor.wrong[:5]}"
    assert monitor.lookups


def _has_registered(fleet: RoutebookFleet, broker: str, since: float) -> bool:
    answers = [fleet.log.answer_to(frame) for frame in fleet.log.of_broker(broker, 103, since=since)]
    return any(answer and answer.code == 0 for answer in answers)
