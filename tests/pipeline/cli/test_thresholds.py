"""`--threshold name=value`."""

from dataclasses import fields

import pytest

from routebook_pipeline.cli.options import known, parse_thresholds
from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import DEFAULTS, Thresholds


def test_none_given_are_the_documented_ones() -> None:
    assert parse_thresholds([]) == DEFAULTS


def test_a_value_may_bring_its_unit_and_a_name_its_dashes() -> None:
    chosen = parse_thresholds(["objective=0.999", "flap=90s", "retire-after-ms=5", "mass_loss_minimum=4"])
    assert (chosen.objective, chosen.flap_ms, chosen.retire_after_ms, chosen.mass_loss_minimum) == (0.999, 90_000, 5, 4)


def test_an_unknown_name_lists_all_with_their_defaults() -> None:
    with pytest.raises(WrongUsageError) as refused:
        parse_thresholds(["objectif=1"])
    for field in fields(Thresholds):
        assert field.name in str(refused.value)
    assert known() in str(refused.value)


@pytest.mark.parametrize(
    "given", ["objective", "objective=2", "objective=a", "flap=nan", "flap=-1", "late-factor=nan", "skew_groups=1.5"]
)
def test_a_value_that_cannot_be_is_refused(given: str) -> None:
    with pytest.raises(WrongUsageError):
        parse_thresholds([given])
