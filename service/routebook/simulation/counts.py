"""How often what happened, and how long lookups took."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

_STEPS_PER_DOUBLING: Final = 32
"""Edges of classes lie 2.2 % apart."""


@dataclass
class Latencies:
    """Of some million lookups, in some hundred numbers."""

    _classes: Counter[int] = field(default_factory=Counter)
    count: int = 0
    longest_ms: float = 0.0

    def add(self, ms: float) -> None:
        self._classes[math.ceil(math.log2(max(ms, 1e-3)) * _STEPS_PER_DOUBLING)] += 1
        self.count += 1
        self.longest_ms = max(self.longest_ms, ms)

    def percentile(self, share: float) -> float:
        """The upper edge of the class in which it lies, in ms; 0 when there was none."""
        rank, seen = math.ceil(share * self.count), 0
        for number, count in sorted(self._classes.items()):
            seen += count
            if seen >= rank:
                return min(2 ** (number / _STEPS_PER_DOUBLING), self.longest_ms)
        return 0.0


@dataclass
class Counts:
    registrations: Counter[str] = field(default_factory=Counter)
    """Answers to 103 by code; `late`, `unreachable`."""
    requests: Counter[int] = field(default_factory=Counter)
    """Other requests of brokers and operators, by code."""
    connections_lost: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    lookups: int = 0
    found: int = 0
    not_found: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Lookups that brought neither: by code, `late`, `unreachable`."""
    retries: int = 0
    """Lookups repeated on a new connection, because the name server said that it goes."""
    switches: int = 0
    """Clients that turned to another name server, or to the same one anew."""
    latencies: Latencies = field(default_factory=Latencies)

    def told(self, code: int, outcome: str) -> None:
        if code == 103:
            self.registrations[outcome] += 1
        else:
            self.requests[code] += 1

    @property
    def failed(self) -> int:
        return self.failures.total()

    def document(self) -> dict[str, object]:
        spread = {f"p{100 * share:g}": round(self.latencies.percentile(share), 3) for share in (0.5, 0.9, 0.99, 0.999)}
        return {
            "registrations": dict(sorted(self.registrations.items())),
            "requests": {str(code): count for code, count in sorted(self.requests.items())},
            "connections_lost": self.connections_lost,
            "troubles": dict(sorted(self.troubles.items())),
            "lookups": {
                "asked": self.lookups,
                "found": self.found,
                "not_found": self.not_found,
                "failed": self.failed,
                "failures": dict(sorted(self.failures.items())),
                "retries": self.retries,
                "switches": self.switches,
                "latency_ms": spread | {"max": round(self.latencies.longest_ms, 3)},
            },
        }
