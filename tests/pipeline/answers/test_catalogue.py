"""The list of questions agrees with the list of computations."""

from routebook_pipeline.answers.catalogue import QUESTIONS, find_question
from routebook_pipeline.answers.computation import COMPUTATIONS, PARTS
from routebook_pipeline.report.data import ReportData


def test_each_listed_question_and_level_has_a_computation() -> None:
    assert set(COMPUTATIONS) == {(question.name, level) for question in QUESTIONS.values() for level in question.levels}


def test_there_are_thirteen_questions() -> None:
    assert len(QUESTIONS) == 13


def test_a_question_may_be_written_with_underscores() -> None:
    assert find_question("heartbeat_gaps") is QUESTIONS["heartbeat-gaps"]


def test_every_part_of_a_report_is_the_answer_to_a_question() -> None:
    assert set(PARTS.values()) <= set(COMPUTATIONS)
    assert set(PARTS) <= set(ReportData.__dataclass_fields__)
