"""docs/simulate.md describes every option and event."""

import re
from typing import get_args

import click
import pytest

from routebook.cli.command import SharedOption
from routebook.cli.simulate import simulate_command as command
from routebook.simulate import plan
from tests.architecture.sources import ROOT

GUIDE = (ROOT / "docs" / "simulate.md").read_text()
SOURCES = [path.read_text() for path in sorted((ROOT / "service" / "routebook" / "simulate").glob("*.py"))]
RECORDED = re.compile(r"record\(\s*\"([a-z-]+)\"")


OWN_OPTIONS = [one for one in command.params if isinstance(one, click.Option) and not isinstance(one, SharedOption)]
"""docs/command-line.md describes the options that all commands share."""


@pytest.mark.parametrize("option", OWN_OPTIONS, ids=str)
def test_every_option_is_explained(option: click.Option) -> None:
    named = (option.secondary_opts or option.opts)[-1]
    assert f"`{named}" in GUIDE


def test_every_event_is_explained() -> None:
    events = {event for text in SOURCES for event in RECORDED.findall(text)}
    topics = {kind for kind in get_args(plan.Kind) if kind.startswith("topic-")}
    assert {"begin", "registered", "stopped", "end"} <= events
    for event in events | topics:
        assert f"`{event}`" in GUIDE
