"""The expositions of several workers as one: what a supervisor answers on its admin port.

Counters and histograms add up. Of gauges, those that count things held by each worker add up; the others
describe the one table all workers share, or a state: there the largest says most, or the smallest where all
must be well.
"""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

_ADDITIVE = {
    "routebook_watchers",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
}
_ALL_MUST = {"routebook_replica_complete", "routebook_replica_version"}

_Labels = tuple[tuple[str, str], ...]


class _Family:
    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text
        self.values: dict[tuple[str, _Labels], float] = {}

    def take(self, family: str, sample: str, labels: _Labels, value: float) -> None:
        key = (sample, labels)
        if key not in self.values:
            self.values[key] = value
        elif self.kind in ("counter", "histogram", "summary") or family in _ADDITIVE:
            self.values[key] += value
        elif family in _ALL_MUST:
            self.values[key] = min(self.values[key], value)
        else:
            self.values[key] = max(self.values[key], value)


def merge_expositions(texts: Iterable[str]) -> str:
    families: dict[str, _Family] = {}
    for text in texts:
        for found in text_string_to_metric_families(text):
            family = families.setdefault(found.name, _Family(found.type, found.documentation))
            for sample in found.samples:
                family.take(found.name, sample.name, tuple(sample.labels.items()), sample.value)
    return "".join(_render(name, family) for name, family in families.items())


def _render(name: str, family: _Family) -> str:
    # The parser strips `_total` from a counter's name; the text form wants it back.
    shown = f"{name}_total" if family.kind == "counter" else name
    lines = [f"# HELP {shown} {_escape(family.text)}", f"# TYPE {shown} {family.kind}"]
    for (sample, labels), value in family.values.items():
        inner = ",".join(f'{label}="{_escape(text, quoted=True)}"' for label, text in labels)
        lines.append(f"{sample}{{{inner}}} {value!r}" if inner else f"{sample} {value!r}")
    return "\n".join(lines) + "\n"


def _escape(text: str, *, quoted: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quoted else escaped
