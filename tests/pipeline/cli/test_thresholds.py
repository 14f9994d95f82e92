"""`--threshold name=value`."""

from dataclasses import fields

import pytest

from routebook_pipeline.cli.options import parse_thresholds, threshold_names
from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import DEFAULTS, Thresholds


def test_without_options_the_defaults_are_used() -> None:
    assert parse_thresholds([]) == DEFAULTS


def test_a_value_may_have_a_unit_and_a_name_dashes() -> None:
    chosen = parse_thresholds(["objective=0.999", "flap=90s", "retire-after-ms=5", "mass_loss_minimum=4"])
    assert (chosen.objective, chosen.flap_ms, chosen.retire_after_ms, chosen.mass_loss_minimum) == (0.999, 90_000, 5, 4)


def test_an_unknown_name_lists_all_with_their_defaults() -> None:
    with pytest.raises(WrongUsageError) as raised:
        parse_thresholds(["objectif=1"])
    for field in fields(Thresholds):
        assert field.name in str(raised.value)
    assert threshold_names() in str(raised.value)


def test_a_duration_needs_a_unit_in_its_name_or_in_its_value() -> None:
    assert parse_thresholds(["flap_ms=30"]).flap_ms == 30
    with pytest.raises(WrongUsageError, match=r"flap=30 has no unit\. Write flap=30s"):
        parse_thresholds(["flap=30"])


@pytest.mark.parametrize(
    "given", ["objective", "objective=2", "objective=a", "flap=nan", "flap=-1", "late-factor=nan", "skew_groups=1.5"]
)
def test_an_impossible_value_is_refused(given: str) -> None:
    with pytest.raises(WrongUsageError):
        parse_thresholds([given])
