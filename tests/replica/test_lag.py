"""How far behind a table is, by what its worker knows."""

from routebook.replica.feed import Lag


def test_what_is_shown_at_once_is_no_lag() -> None:
    lag = Lag()
    lag.note_stored(5, shown=5, now=10.0)
    assert (lag.changes(5), lag.seconds(99.0)) == (0, 0.0)


def test_the_time_counts_from_when_the_oldest_missing_change_was_known() -> None:
    lag = Lag()
    lag.note_stored(7, shown=5, now=10.0)
    lag.note_stored(9, shown=5, now=12.0)
    assert (lag.changes(5), lag.seconds(13.0)) == (4, 3.0)


def test_it_ends_when_all_is_shown() -> None:
    lag = Lag()
    lag.note_stored(7, shown=5, now=10.0)
    lag.note_shown(7)
    assert (lag.changes(7), lag.seconds(20.0)) == (0, 0.0)


def test_a_table_that_is_always_a_little_behind_does_not_look_ever_older() -> None:
    lag = Lag()
    for step in range(100):
        lag.note_stored(step + 2, shown=step, now=float(step))
        lag.note_shown(step + 1)
        assert lag.seconds(step + 0.5) <= 1.5


def test_what_was_heard_late_does_not_count_twice() -> None:
    lag = Lag()
    lag.note_stored(9, shown=5, now=10.0)
    lag.note_stored(7, shown=5, now=11.0)
    lag.note_shown(9)
    assert lag.seconds(50.0) == 0.0


def test_another_table_begins_anew() -> None:
    lag = Lag()
    lag.note_stored(900, shown=5, now=10.0)
    lag.reset()
    assert (lag.changes(3), lag.seconds(50.0)) == (0, 0.0)
