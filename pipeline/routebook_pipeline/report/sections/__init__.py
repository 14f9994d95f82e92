"""The parts of the page, one module each, in the order in which they are read."""

from collections.abc import Callable
from typing import Final

from routebook_pipeline.report.findings import Findings
from routebook_pipeline.report.sections import (
    anomalies,
    bands,
    capacity,
    churn,
    definitions,
    exposure,
    failovers,
    failures,
    heartbeats,
    integrity,
    objectives,
)
from routebook_pipeline.report.sections.section import Section

ALL: Final[tuple[Callable[[Findings], Section], ...]] = (
    integrity.section,
    objectives.section,
    bands.section,
    failures.section,
    heartbeats.section,
    exposure.section,
    capacity.section,
    churn.section,
    failovers.section,
    anomalies.section,
    definitions.section,
)
