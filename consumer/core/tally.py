"""What a run of the consumer did, to be told at its end and while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.sql.loading.load import Loaded

MAX_KEYS = 100
"""So many ignored keys are counted by name: senders can think of any number of them."""
OTHERS = "(others)"
LONGEST_KEY = 80


@dataclass
class Tally:
    """Counts of one process since its start."""

    messages: Counter[str] = field(default_factory=Counter)
    """By broker."""
    rows: int = 0
    rows_by_class: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    """New ones, by reason."""
    checks: int = 0
    ignored_keys: Counter[str] = field(default_factory=Counter)
    damaged: int = 0
    """Spool elements put aside unread."""

    @property
    def all_loaded(self) -> bool:
        """Whether every record became a row."""
        return not self.dead_letters and not self.damaged

    def add(self, batch: Sequence[Delivery], loaded: Loaded) -> None:
        self.messages.update(delivery.session.broker for delivery in batch)
        self.rows += loaded.rows
        self.rows_by_class.update(loaded.rows_by_class)
        self.dead_letters.update(loaded.dead_letters)
        self.checks += loaded.checks
        for key, count in loaded.ignored_keys.items():
            self.ignored_keys[self._counted_as(key)] += count

    def as_json(self) -> dict[str, object]:
        return {
            "messages": self.messages.total(),
            "rows": self.rows,
            "dead_letters": dict(self.dead_letters),
            "checks": self.checks,
            "ignored_keys": dict(self.ignored_keys),
            "damaged_elements": self.damaged,
            "brokers": [{"broker": name, "messages": n} for name, n in self.messages.items()],
            "classes": [{"class": name, "rows": n} for name, n in self.rows_by_class.items()],
        }

    def __str__(self) -> str:
        parts = [f"{self.messages.total()} messages{listed(self.messages)}", f"{self.rows} rows"]
        parts.append(f"{self.dead_letters.total()} dead letters{listed(self.dead_letters)}")
        if self.checks:
            parts.append(f"{self.checks} checks")
        if self.ignored_keys:
            parts.append(f"ignored keys{listed(self.ignored_keys)}")
        if self.damaged:
            parts.append(f"{self.damaged} damaged spool elements put aside")
        return ", ".join(parts)

    def _counted_as(self, key: str) -> str:
        """The sender's own name, as far as it is one to print."""
        name = key[:LONGEST_KEY].encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")
        known = name in self.ignored_keys or len(self.ignored_keys) < MAX_KEYS
        return name if known else OTHERS


def listed(counts: Mapping[str, int]) -> str:
    """` (a: 1, b: 2)`, the most frequent first."""
    if not counts:
        return ""
    inside = ", ".join(f"{name}: {n}" for name, n in Counter(counts).most_common())
    return f" ({inside})"
