"""A request passes through few files, so that a reader can follow it.

`python -m tests.architecture.files_per_flow` prints the table. The limits are the aims of decision 0048. When a subject
of its own is added to a flow, merge others that are one subject.
"""

import pytest

from tests.architecture.files_per_flow import FLOWS, Trace, measure

FILES = {"first registration": 36, "repeated registration": 20, "lookup": 4, "expiry": 30}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    found = measure(tmp_path_factory.mktemp("traced"))
    for flow, trace in found.items():
        print(f"{flow}: {len(trace.files)} files, {trace.moves} moves")
    return found


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_passes_through_few_files(flow: str, traces: dict[str, Trace]) -> None:
    assert len(traces[flow].files) <= FILES[flow], traces[flow]


def test_the_tracer_sees_the_path_of_a_registration(traces: dict[str, Trace]) -> None:
    """It would otherwise pass by tracing nothing."""
    expected = {"registry/registry.py", "remoting/handlers.py", "store/registration.py", "replica/feed.py"}
    assert expected <= set(traces["first registration"].files)
