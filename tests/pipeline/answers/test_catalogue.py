"""The list of questions, and what is computed for them."""

from routebook_pipeline.answers.catalogue import QUESTIONS, find_question
from routebook_pipeline.answers.computation import COMPUTATIONS
from routebook_pipeline.answers.report_data import PARTS
from routebook_pipeline.report.data import ReportData


def test_what_is_listed_can_be_asked_and_nothing_else() -> None:
    assert set(COMPUTATIONS) == {(question.name, level) for question in QUESTIONS.values() for level in question.levels}


def test_there_are_twelve() -> None:
    assert len(QUESTIONS) == 12


def test_a_question_may_be_written_with_underscores() -> None:
    assert find_question("heartbeat_gaps") is QUESTIONS["heartbeat-gaps"]


def test_a_report_is_made_of_answers() -> None:
    assert set(PARTS.values()) <= set(COMPUTATIONS)
    assert set(PARTS) <= set(ReportData.__dataclass_fields__)
