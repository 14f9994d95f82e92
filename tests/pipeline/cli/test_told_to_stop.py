"""Signals, without Spark."""

import signal

import pytest

from routebook_pipeline.cli.ingest import SIGNALS, told_to_stop
from routebook_pipeline.cli.progress import Progress


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with told_to_stop(Progress()) as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
        assert f"{number.name}: ending after the running batch" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) == before
