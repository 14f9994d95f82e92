"""The protections of the model, and what TLC finds without each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Mutant:
    violates: str | None
    """The invariant; None where another protection suffices."""
    changes: Mapping[str, int | bool] = field(default_factory=dict)
    """Other constants than in `Routebook.cfg`, so that the violation is within the bounds."""


MUTANTS: Final[Mapping[str, Mutant]] = {
    "NamesLoss": Mutant("I1_HealthyBrokersStay"),
    "ChecksDeadline": Mutant("I1_HealthyBrokersStay"),
    "PausesClock": Mutant("I1_HealthyBrokersStay"),
    "ConfirmsLastEntry": Mutant("I4_SameTables"),
    "KeepsOldTable": Mutant("I5_NeverNoSuchTopic"),
    "PausesWindow": Mutant("I5_NeverNoSuchTopic", {"LastTick": 5}),
    "TokenFromClock": Mutant("I7_Fenced"),
    "ClearsDigests": Mutant("I9_AcknowledgedSurvives"),
    "ComparesStamps": Mutant("SessionsAreKept"),
    "FencesLeader": Mutant(None),
    "WarmsUp": Mutant(None),
    "ComparesIncarnation": Mutant(None),
    "ChecksSessions": Mutant(None),
}
