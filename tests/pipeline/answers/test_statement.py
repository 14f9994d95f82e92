"""What an answer rests on, in one line."""

from typing import Any

from routebook_pipeline.answers.coverage import integrity_line, is_ok, window_line

WHOLE: dict[str, Any] = {
    "era": 0,
    "first_version": 1,
    "last_version": 9,
    "entries": 9,
    "holes": [],
    "missing": 0,
    "forks": 0,
    "late": 0,
    "duplicates": 0,
    "unreadable": {},
    "baselines": 1,
    "complete_until_ms": 0,
    "ok": True,
}
TORN = WHOLE | {
    "era": 1,
    "holes": [{"from_version": 3, "to_version": 4}],
    "missing": 2,
    "forks": 1,
    "unreadable": {"newer": 1},
    "ok": False,
}


def test_a_whole_history_is_said_to_be_so() -> None:
    assert is_ok([WHOLE])
    assert integrity_line([WHOLE]) == "history ok: versions 1 to 9, 9 entries"


def test_everything_that_is_wrong_is_named() -> None:
    assert not is_ok([WHOLE, TORN])
    assert integrity_line([WHOLE, TORN]) == (
        "history NOT ok: era 0: versions 1 to 9, 9 entries; "
        "era 1: versions 1 to 9, 9 entries, 2 missing (3-4), 1 forks, 1 unreadable (newer)"
    )


def test_a_window_without_entries_leaves_nothing_out() -> None:
    assert is_ok([])
    assert integrity_line([]) == "history ok: no entries in the window"


def test_a_part_is_called_one() -> None:
    assert "PARTIAL" not in window_line(0, 5, 9, 5)
    assert window_line(0, 5, 5, 9).endswith("PARTIAL: asked until 1970-01-01T00:00:00.009Z")
