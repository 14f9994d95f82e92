"""A flood of log lines is limited, and the number of suppressed lines is logged."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from routebook.observability.logs import (
    LINES_PER_PERIOD,
    PERIOD_S,
    TRACES_PER_PERIOD,
    JsonFormat,
    LimitedHandler,
    suppressed_lines,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("routebook.observability.logs.time.monotonic", clock.monotonic)
    return clock


@pytest.fixture
def stream(clock: Clock) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = LimitedHandler(stream)
    handler.setFormatter(JsonFormat([]))
    loggers = [logging.getLogger(name) for name in ("bounded", "routebook.audit")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield stream
    for logger in loggers:
        logger.removeHandler(handler)


log, audit = logging.getLogger("bounded"), logging.getLogger("routebook.audit")


def lines_of(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["message"] for line in stream.getvalue().splitlines()]


def test_lines_beyond_the_limit_are_suppressed_and_counted(clock: Clock, stream: io.StringIO) -> None:
    before = suppressed_lines()
    for number in range(LINES_PER_PERIOD + 250):
        log.info("broker %d flaps", number)
    log.info("another line")
    assert len(lines_of(stream)) == LINES_PER_PERIOD + 1, "the bound is for each kind of line alone"
    assert suppressed_lines() - before == 250
    clock.now += PERIOD_S
    log.info("broker %d flaps", 9999)
    assert lines_of(stream)[-2:] == [
        "250 lines like this one of bounded were suppressed in the last seconds: broker %d flaps",
        "broker 9999 flaps",
    ]


def test_tracebacks_have_a_lower_limit(clock: Clock, stream: io.StringIO) -> None:
    for _ in range(TRACES_PER_PERIOD + 5):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            log.exception("it failed")
    assert len(lines_of(stream)) == TRACES_PER_PERIOD


def test_a_period_later_lines_are_written_again(clock: Clock, stream: io.StringIO) -> None:
    for _ in range(3):
        for number in range(LINES_PER_PERIOD):
            log.info("%d", number)
        clock.now += PERIOD_S
    assert len(lines_of(stream)) == 3 * LINES_PER_PERIOD


def test_audit_lines_of_refusals_are_limited_and_others_are_not(clock: Clock, stream: io.StringIO) -> None:
    for _ in range(LINES_PER_PERIOD + 10):
        audit.info("done")
        audit.warning("refused")
    assert (lines_of(stream).count("done"), lines_of(stream).count("refused")) == (
        LINES_PER_PERIOD + 10,
        LINES_PER_PERIOD,
    )


def test_suppressed_lines_are_reported_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    handler = LimitedHandler(stream)
    for number in range(LINES_PER_PERIOD + 1):
        handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "line %d", (number,), None))
    handler.close()
    assert stream.getvalue().splitlines()[-1].startswith("1 lines like this one of x were suppressed")
