"""The sections of the page, in their order."""

from collections.abc import Callable
from typing import Final

from routebook_pipeline.report.data import ReportData
from routebook_pipeline.report.markup import Section
from routebook_pipeline.report.sections import availability, definitions, failures, heartbeats, integrity, topics

ALL: Final[tuple[Callable[[ReportData], Section], ...]] = (
    integrity.integrity_section,
    availability.objective_section,
    availability.band_section,
    failures.failure_section,
    heartbeats.heartbeat_section,
    heartbeats.exposure_section,
    topics.capacity_section,
    topics.churn_section,
    failures.failover_section,
    integrity.anomaly_section,
    definitions.definition_section,
)
