"""An answer that was computed, and what it says of itself."""

from dataclasses import dataclass
from typing import Any

import pyarrow

from routebook_pipeline.answers.answering import Answer, Row, plain_rows, take, take_rows
from routebook_pipeline.answers.statement import is_ok
from routebook_pipeline.shapes import INTEGRITY
from routebook_pipeline.times import iso


@dataclass(frozen=True)
class Taken:
    answer: Answer
    table: pyarrow.Table
    integrity: list[Row]

    @property
    def rows(self) -> list[Row]:
        return plain_rows(self.table)

    @property
    def is_ok(self) -> bool:
        return is_ok(self.integrity)

    def statement(self) -> dict[str, Any]:
        """Without the rows. Times as text; inside rows they are milliseconds, as in the lake."""
        basis = self.answer.basis
        settled = basis.settled
        return {
            "question": self.answer.question.name,
            "by": self.answer.level,
            "window": {"from": iso(settled.window.start_ms), "to": iso(settled.window.end_ms)},
            "since": iso(basis.since_ms),
            "complete_until": iso(basis.reach.complete_until_ms),
            "partial": settled.is_partial,
            "ok": self.is_ok,
            "integrity": self.integrity,
        }


def compute(answer: Answer) -> Taken:
    table = take(answer.rows, answer.shape)
    if answer.question.name == "integrity":
        return Taken(answer, table, plain_rows(table))
    return Taken(answer, table, take_rows(answer.integrity, INTEGRITY))
