"""Reports that lie ready."""

from pydantic import Field

from routebook.http_api.report_folder import ReportFile
from routebook.http_api.schemas.shapes import Answer


class ReportWindow(Answer):
    from_ms: int = Field(examples=[1793491200000])
    to_ms: int = Field(description="Exclusive.", examples=[1794700800000])


class Report(Answer):
    name: str = Field(examples=["report-default-2026-11-01--2026-11-15.html"])
    bytes: int = Field(examples=[138905])
    modified_ms: int = Field(description="When it was written.", examples=[1794700840000])
    window: ReportWindow | None = Field(description="The time it is about, when its name says so.")
    url: str = Field(
        description="Where to read it, on this host.",
        examples=["/v1/reports/report-default-2026-11-01--2026-11-15.html"],
    )

    @classmethod
    def of(cls, report: ReportFile, url: str) -> "Report":
        window = report.window_ms
        return cls(
            name=report.name,
            bytes=report.bytes,
            modified_ms=report.modified_ms,
            window=ReportWindow(from_ms=window[0], to_ms=window[1]) if window else None,
            url=url,
        )


class Reports(Answer):
    reports: list[Report] = Field(description="Newest first.")
    total: int = Field(description="How many there are, listed or not.", examples=[1])
