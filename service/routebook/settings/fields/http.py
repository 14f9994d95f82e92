"""Requests over HTTP: how long and how large; and what is shown besides the route table."""

from typing import Annotated

from pydantic import Field

from routebook.settings.fields.about import About, Duration, Part


class HttpSettings(Part):
    min_version_wait_ms: Annotated[
        Duration, About("How long a reader that names ?min_version= may wait for it. 0: not at all.")
    ] = 5_000
    request_timeout_ms: Annotated[
        Annotated[int, Field(ge=100, le=3_600_000)],
        About("A request must have arrived whole and be answered within this; uvicorn has no such deadline."),
    ] = 10_000
    max_body_bytes: Annotated[
        Annotated[int, Field(ge=1_024, le=1_073_741_824)],
        About("Largest request body in bytes: 64 MiB holds 70 000 topics several times over."),
    ] = 67_108_864
    reports_dir: Annotated[
        str,
        About(
            "Folder whose reports (`routebook pipeline report --out`) are shown under /v1/reports. Empty: none. "
            "Whoever reaches the port may read them.",
            allowed="a folder",
        ),
    ] = ""
