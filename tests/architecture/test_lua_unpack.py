"""No script passes an unbounded list to `unpack`, which fails beyond some 8,000 values: perhaps after a first write."""

from tests.architecture.sources import ROOT

BOUNDED = {
    "adopt_lost_connections.lua": "seven values for each of INSTANCES_PER_CALL",
    "close_sessions.lua": "five values for each of instances_per_call()",
    "expire_brokers.lua": "INSTANCES_PER_BATCH",
    "include/queue_tables.lua": "MAX_FORMER_ITEMS",
    "include/slices.lua": "SLICE",
    "read_group.lua": "SLICE",
    "repair_group.lua": "the arguments of one instance",
    "scan_deadlines.lua": "four values for each of the leader's INSTANCES_PER_SCAN",
    "unregister_brokers.lua": "the arguments of one request",
}
"""What bounds the list of each `unpack`."""


def test_every_unpack_has_a_bound() -> None:
    folder = ROOT / "lua"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.lua") if "unpack(" in path.read_text()}
    assert found <= BOUNDED.keys()
