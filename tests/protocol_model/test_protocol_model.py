"""The model of the protocol holds, and without one of its protections TLC finds what goes wrong."""

import re

import pytest

from tests.protocol_model.mutants import MUTANTS
from tests.protocol_model.tlc import MODEL, UnavailableError, check, configuration, read_result, tlc_jar

MAX_LINES = 400
INVARIANTS = re.findall(r"^  (\w+)$", (MODEL / "Routebook.cfg").read_text().partition("INVARIANTS")[2], re.MULTILINE)
FOUND = {name: mutant for name, mutant in MUTANTS.items() if mutant.violates}


def test_the_model_is_short_enough_to_be_read() -> None:
    assert len((MODEL / "Routebook.tla").read_text().splitlines()) <= MAX_LINES


def test_each_mutant_switches_a_protection_off_that_the_model_has() -> None:
    text = (MODEL / "Routebook.tla").read_text()
    for name, mutant in MUTANTS.items():
        assert f"  {name} = FALSE" in configuration({name: False, **mutant.changes})
        assert len(re.findall(rf"\b{name}\b", text)) >= 2, f"{name} is declared and not used"
        assert mutant.violates in {None, *INVARIANTS}


def test_a_configuration_without_the_constant_is_an_error() -> None:
    with pytest.raises(ValueError, match="Unknown"):
        configuration({"Unknown": 1})


def test_a_run_without_a_result_is_an_error() -> None:
    with pytest.raises(AssertionError, match="out of memory"):
        read_result("out of memory")


@pytest.fixture(scope="module")
def _tlc() -> None:
    try:
        tlc_jar()
    except UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.usefixtures("_tlc")
def test_the_protocol_breaks_no_invariant() -> None:
    checked = check()
    assert checked.violated is None, checked.output[-5000:]
    assert checked.distinct_states > 100_000


@pytest.mark.slow
@pytest.mark.usefixtures("_tlc")
@pytest.mark.parametrize("protection", FOUND)
def test_a_missing_protection_is_found(protection: str) -> None:
    assert check(**{protection: False}, **FOUND[protection].changes).violated == FOUND[protection].violates
