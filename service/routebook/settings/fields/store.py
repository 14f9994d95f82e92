"""The store, and what is kept in it."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from routebook.settings.fields.about import (
    STORE_SCHEMES,
    About,
    Duration,
    Part,
    check_namespace_text,
    check_store_url_text,
)
from routebook.settings.masking import Secret


class StoreSettings(Part):
    redis_url: Annotated[
        str,
        AfterValidator(check_store_url_text),
        About(
            "The store. Empty: `up` starts an embedded one, `serve` needs one.",
            allowed="a URL that begins with " + ", ".join(STORE_SCHEMES),
            secret=Secret.URL,
        ),
    ] = Field(default="", repr=False)
    namespace: Annotated[
        str,
        AfterValidator(check_namespace_text),
        About(
            "Prefix and hash slot of every key in the store: one fleet each.",
            allowed="1 to 64 of A-Z a-z 0-9 . _ -",
        ),
    ] = "default"
    store_timeout_ms: Annotated[
        Annotated[int, Field(ge=10, le=60_000)],
        About("Deadline of one call to the store; writes are refused after it, lookups do not need it."),
    ] = 1_000
    store_connections: Annotated[
        Annotated[int, Field(ge=1, le=1_000)],
        About("Most connections of one worker to the store; a script takes well below a millisecond."),
    ] = 8
    store_cut_off_ms: Annotated[
        Annotated[int, Field(ge=1_000, le=3_600_000)],
        About(
            "A worker that has not reached the store for so long closes, spread over some seconds, the connections of "
            "its brokers: they come back, through the balancer, to one that can. Shorter than a failover would move "
            "all of them for nothing.",
            at_run_time=True,
        ),
    ] = 10_000
    store_wait_ms: Annotated[
        Duration,
        About(
            "At the start, how long a store that cannot be reached is waited for, alive and not ready. 0: not at all; "
            "people want the message at once, but a container that ended is started again after minutes."
        ),
    ] = 0
    kv_config_path: Annotated[
        str,
        About(
            "Apache's kvConfig.json, imported once into a store that never held key-values. Empty: none.",
            properties_name="kvConfigPath",
        ),
    ] = ""
    data_dir: Annotated[
        Path, About("Folder of the embedded store of `up`; its data survive restarts.", allowed="a folder")
    ] = Path(".routebook")
