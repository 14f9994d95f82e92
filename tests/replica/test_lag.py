"""The lag of a table behind the versions that its worker knows."""

from routebook.replica.feed import Lag


def test_a_change_that_is_shown_at_once_causes_no_lag() -> None:
    lag = Lag()
    lag.note_stored(5, shown=5, now=10.0)
    assert (lag.changes(5), lag.seconds(99.0)) == (0, 0.0)


def test_the_lag_is_the_age_of_the_oldest_change_not_shown() -> None:
    lag = Lag()
    lag.note_stored(7, shown=5, now=10.0)
    lag.note_stored(9, shown=5, now=12.0)
    assert (lag.changes(5), lag.seconds(13.0)) == (4, 3.0)


def test_the_lag_ends_when_all_changes_are_shown() -> None:
    lag = Lag()
    lag.note_stored(7, shown=5, now=10.0)
    lag.note_shown(7)
    assert (lag.changes(7), lag.seconds(20.0)) == (0, 0.0)


def test_the_lag_of_a_table_that_is_always_slightly_behind_does_not_grow() -> None:
    lag = Lag()
    for step in range(100):
        lag.note_stored(step + 2, shown=step, now=float(step))
        lag.note_shown(step + 1)
        assert lag.seconds(step + 0.5) <= 1.5


def test_an_older_version_does_not_change_the_lag() -> None:
    lag = Lag()
    lag.note_stored(9, shown=5, now=10.0)
    lag.note_stored(7, shown=5, now=11.0)
    lag.note_shown(9)
    assert lag.seconds(50.0) == 0.0


def test_a_reset_ends_the_lag() -> None:
    lag = Lag()
    lag.note_stored(900, shown=5, now=10.0)
    lag.reset()
    assert (lag.changes(3), lag.seconds(50.0)) == (0, 0.0)
