"""Log lines about peers are limited in number and length."""

import logging
import time

import pytest

from routebook.observability import logs as peer_log
from routebook.observability.logs import PeerLog


def test_lines_are_limited_and_suppressed_ones_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    log = PeerLog(logging.getLogger("routebook.test"))
    with caplog.at_level("INFO"):
        for number in range(500):
            log.log(logging.INFO, "line %s", number)
        assert len(caplog.records) == peer_log.PEER_LINES_PER_PERIOD
        clock[0] += peer_log.PEER_PERIOD_S
        log.log(logging.INFO, "line %s", "again")
    assert "400 lines about peers were suppressed" in caplog.text
    assert caplog.records[-1].getMessage() == "line again"


def test_long_values_are_truncated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        PeerLog(logging.getLogger("routebook.test")).log(logging.INFO, "%s says %s", "127.0.0.1:1", "x" * 100_000)
    assert len(caplog.records[0].getMessage()) < 400
