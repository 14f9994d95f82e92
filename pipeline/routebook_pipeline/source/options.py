"""The options of the source, as given with `.option(…)`. An unknown option is refused: otherwise a misspelt limit would
read without a limit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, STREAMS, EntryId

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
FAIL: Final = "fail"
RECORD: Final = "record"

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOKS_LIKE_ADDRESS: Final = re.compile(r"^\s*[a-z]+://|@")


@dataclass(frozen=True)
class SourceOptions:
    """A namespace has one stream of changes, read by one query into one lake folder."""

    stream: str = CHANGES
    namespace: str = "default"
    url_env: str = DEFAULT_URL_ENV
    """Name of the environment variable with the store's address, on the driver and on executors."""
    max_entries_per_trigger: int = 500_000
    entries_per_partition: int = 100_000
    """250,000 had the best throughput; smaller partitions use more executors."""
    chunk: int = 5_000
    """Entries in one reply of the store; fewer where they are large."""
    on_loss: str = FAIL
    starting: str = EARLIEST
    """Where to start without a checkpoint and without `start_id`."""
    start_id: EntryId | None = None
    """Read the entries after this one: the position up to which the reader has everything."""
    end_id: EntryId | None = None
    """The last entry of a batch read."""
    decoded: bool = False
    """Decode the entries that are certainly readable where they are read."""

    @property
    def record_losses(self) -> bool:
        return self.on_loss == RECORD

    @staticmethod
    def parse(given: Mapping[str, str]) -> "SourceOptions":
        """Option names are case-insensitive, as everywhere in Spark. WrongUsageError names the option, but no value
        that may contain a password.
        """
        values = {name.lower(): value for name, value in given.items()}
        _refuse_addresses(values)
        if unknown := sorted(values.keys() - _KNOWN):
            _refuse(f"The source routebook has no option {unknown[0]}. Its options: {', '.join(sorted(_KNOWN))}.")
        default = SourceOptions()
        return SourceOptions(
            stream=_choice(values, "stream", STREAMS, default.stream),
            namespace=_namespace(values.get("namespace", default.namespace)),
            url_env=values.get("url_env", default.url_env),
            max_entries_per_trigger=_number(values, "max_entries_per_trigger", default.max_entries_per_trigger),
            entries_per_partition=_number(values, "entries_per_partition", default.entries_per_partition),
            chunk=_number(values, "chunk", default.chunk),
            on_loss=_choice(values, "on_loss", (FAIL, RECORD), default.on_loss),
            starting=_choice(values, "starting", (EARLIEST, LATEST), default.starting),
            start_id=_entry_id(values, "start_id"),
            end_id=_entry_id(values, "end_id"),
            decoded=_choice(values, "decoded", ("true", "false"), "false") == "true",
        )


_KNOWN: Final = frozenset(SourceOptions.__dataclass_fields__)


def _refuse_addresses(values: Mapping[str, str]) -> None:
    wrong = [name for name, value in values.items() if _LOOKS_LIKE_ADDRESS.search(value)]
    wrong += [name for name in ("url", "address", "redis_url") if name in values and name not in wrong]
    variable = values.get("url_env", DEFAULT_URL_ENV)
    if not wrong and not _VARIABLE.fullmatch(variable):
        wrong = ["url_env"]
    if wrong:
        _refuse(
            f"The option {wrong[0]} of the source routebook holds an address. Options are printed in plans and logs, "
            "so the store's address cannot be one: put it in an environment variable of the driver and the executors, "
            f"and name that variable with the option url_env (default {DEFAULT_URL_ENV})."
        )


def _namespace(value: str) -> str:
    if not value or set(value) & set("{}: "):
        _refuse("The option namespace of the source routebook is not valid: no braces, colons or spaces are allowed.")
    return value


def _choice(values: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = values.get(name, default)
    if value not in allowed:
        _refuse(f"The option {name} of the source routebook is {value!r}. Allowed: {', '.join(allowed)}.")
    return value


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    value = values.get(name, str(default))
    if not value.isdecimal() or int(value) < 1:
        _refuse(f"The option {name} of the source routebook is {value!r}. Allowed: whole numbers from 1.")
    return int(value)


def _entry_id(values: Mapping[str, str], name: str) -> EntryId | None:
    if name not in values:
        return None
    try:
        return EntryId.parse(values[name])
    except ValueError as error:
        raise WrongUsageError(f"The option {name} of the source routebook: {error}.") from error


def _refuse(message: str) -> NoReturn:
    raise WrongUsageError(message)
