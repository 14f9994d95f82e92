"""Merges the metrics of several workers into one exposition, for the supervisor's admin port.

Counters and histograms are summed. Gauges that count things held by each worker are summed too. The other gauges
describe the table that all workers share, or a state: the result is the maximum, or the minimum where every worker
must be well.

A counter's sum must never fall, because a scraper takes a fall for a restart and counts the whole value as new. So the
counts of a worker that died, or that does not answer at the moment, remain in the sum.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_ADDITIVE: Final = {
    "routebook_watchers",
    "routebook_sessions",
    "routebook_connections",
    "routebook_connections_limit",
    "routebook_tasks",
    "routebook_remoting_waiting_requests",
    "process_open_fds",
    "process_max_fds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
}
_MINIMUM: Final = {"routebook_replica_complete", "routebook_replica_version"}
_CUMULATIVE: Final = ("counter", "histogram", "summary")

_Labels = tuple[tuple[str, str], ...]
_Sample = tuple[str, str, _Labels]
"""Family, sample, labels."""


@dataclass(frozen=True, slots=True)
class WorkerExposition:
    """The exposition of one process. A restarted process counts from zero, under the next `generation`."""

    source: str
    generation: int
    text: str


@dataclass(slots=True)
class _Counted:
    generation: int
    values: dict[_Sample, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Family:
    kind: str
    text: str


class ExpositionMerger:
    """Lives as long as the supervisor, because it keeps the counts of dead workers."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._ended: dict[_Sample, float] = {}
        """Counts of processes that have ended."""
        self._counted: dict[str, _Counted] = {}

    def merge(self, expositions: Iterable[WorkerExposition]) -> str:
        gauges: dict[_Sample, float] = {}
        states: list[Mapping[str, float]] = []
        for one in expositions:
            found = self._read(one.text)
            counted = _Counted(one.generation)
            for key, value in found.items():
                if self._families[key[0]].kind in _CUMULATIVE:
                    counted.values[key] = value
                else:
                    gauges[key] = value if key not in gauges else _combined(key[0], gauges[key], value)
            self._take(one.source, counted)
            states.append({name: value for (name, _, labels), value in found.items() if not labels})
        by_family: dict[str, dict[_Sample, float]] = {name: {} for name in self._families}
        for key, value in (gauges | self._sums()).items():
            by_family[key[0]][key] = value
        rendered = [_render(name, self._families[name], values) for name, values in by_family.items()]
        return "".join(rendered) + _agreement(states)

    def _read(self, text: str) -> dict[_Sample, float]:
        found: dict[_Sample, float] = {}
        for family in text_string_to_metric_families(text):
            self._families.setdefault(family.name, _Family(family.type, family.documentation))
            for sample in family.samples:
                found[family.name, sample.name, tuple(sample.labels.items())] = sample.value
        return found

    def _take(self, source: str, counted: _Counted) -> None:
        before = self._counted.get(source)
        if before and before.generation != counted.generation:
            _add(self._ended, before.values)
        self._counted[source] = counted

    def _sums(self) -> dict[_Sample, float]:
        sums = dict(self._ended)
        for counted in self._counted.values():
            _add(sums, counted.values)
        return sums


def _render(name: str, family: _Family, values: Mapping[_Sample, float]) -> str:
    # The parser strips `_total` from a counter's name; the text form needs it.
    shown = f"{name}_total" if family.kind == "counter" else name
    lines = [f"# HELP {shown} {_escape(family.text)}", f"# TYPE {shown} {family.kind}"]
    for (_, sample, labels), value in values.items():
        inner = ",".join(f'{label}="{_escape(text, quoted=True)}"' for label, text in labels)
        lines.append(f"{sample}{{{inner}}} {value!r}" if inner else f"{sample} {value!r}")
    return "\n".join(lines) + "\n"


def _combined(family: str, one: float, other: float) -> float:
    if family in _ADDITIVE:
        return one + other
    return min(one, other) if family in _MINIMUM else max(one, other)


def _add(sums: dict[_Sample, float], values: Mapping[_Sample, float]) -> None:
    for key, value in values.items():
        sums[key] = sums.get(key, 0.0) + value


def _agreement(states: list[Mapping[str, float]]) -> str:
    """Whether the workers agree, which a minimum or maximum cannot show."""
    tables = [one for one in states if one.get("routebook_replica_complete")]
    versions = [one.get("routebook_replica_version", 0.0) for one in tables]
    spread = max(versions, default=0.0) - min(versions, default=0.0)
    facts = {(one.get("routebook_replica_version", 0.0), one.get("routebook_replica_digest")) for one in tables}
    disagree = len(facts) > len(set(versions))
    return (
        "# HELP routebook_workers_version_spread Versions between the most and the least advanced worker process.\n"
        f"# TYPE routebook_workers_version_spread gauge\nroutebook_workers_version_spread {spread!r}\n"
        "# HELP routebook_workers_disagree 1 when worker processes have different tables at one version.\n"
        f"# TYPE routebook_workers_disagree gauge\nroutebook_workers_disagree {int(disagree)}\n"
    )


def _escape(text: str, *, quoted: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quoted else escaped
