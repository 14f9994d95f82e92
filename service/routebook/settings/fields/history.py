"""How much of what has happened is kept in the store."""

from typing import Annotated

from pydantic import Field

from routebook.settings.fields.about import About, Part

_Entries = Annotated[int, Field(ge=1_000, le=1_000_000_000)]
_Bytes = Annotated[int, Field(ge=1_048_576, le=1_099_511_627_776)]


class HistorySettings(Part):
    history_min_entries: Annotated[
        _Entries,
        About(
            "So many changes are kept even if every reader has them: what watches resume from and new readers find. "
            "Some 30 MB of the usual size.",
            at_run_time=True,
            former_name="history_max_entries",
        ),
    ] = 100_000
    history_hard_limit: Annotated[
        _Entries,
        About(
            "More changes than this are not kept, even for a reader that has not read them: memory comes first. Some "
            "1 GB of the usual size.",
            at_run_time=True,
        ),
    ] = 5_000_000
    history_max_bytes: Annotated[
        _Bytes,
        About(
            "The history takes no more than about this, whatever the two numbers of entries say: a change of 1,000 "
            "topics alone takes 60 KB.",
            at_run_time=True,
        ),
    ] = 268_435_456
    reader_expiry_ms: Annotated[
        Annotated[int, Field(ge=60_000, le=31_536_000_000)],
        About(
            "A reader of the history (the pipeline) that has not said for so long how far it came holds nothing back "
            "any more. Seven days: a long week-end with a broken job loses nothing.",
            at_run_time=True,
        ),
    ] = 604_800_000
    pulse_max_bytes: Annotated[
        _Bytes,
        About(
            "The stream of heartbeat gaps takes no more than about this: half a day of a thousand brokers, which a "
            "pipeline that runs fetches within minutes.",
            at_run_time=True,
        ),
    ] = 67_108_864
