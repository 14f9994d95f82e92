"""Signals that stop an ingest, without Spark."""

import signal

import pytest

from routebook_pipeline.cli.ingest import STOP_SIGNALS, stop_on_signals
from routebook_pipeline.cli.progress import Progress


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_sets_the_event_and_the_second_interrupts(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with stop_on_signals(Progress()) as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
        assert f"{number.name}: ending after the running batch" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) == before
