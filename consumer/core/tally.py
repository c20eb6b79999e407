"""Counts of messages and their outcome, for one batch or for a process since its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sam_pipeline.consumer.core.inbox import Delivery, count_by_broker
from sam_pipeline.consumer.core.outcome import MessageOutcome
from sam_pipeline.schema.program.wording import plural, printable, rows_and_duplicates

MAX_KEYS = 100
"""The limit on ignored keys that are counted by name, since senders may invent any number."""
MAX_REFUSALS = 1000
"""The same for publishers and reasons of refusals."""
OTHERS = "(others)"
LONGEST_KEY = 80


@dataclass
class Tally:
    """Messages and their outcome."""

    messages: Counter[str] = field(default_factory=Counter)
    """By broker."""
    rows_by_class: Counter[str] = field(default_factory=Counter)
    """Rows stored."""
    duplicates_by_class: Counter[str] = field(default_factory=Counter)
    """Rows that changed nothing, since the database had them, or others that take precedence."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """New dead letters by reason."""
    repeated_dead_letters: int = 0
    """Dead letters that were stored before."""
    summarised_dead_letters: int = 0
    """Dead letters beyond the limits on their senders, only counted in summaries."""
    checks: int = 0
    """Messages that only test the path."""
    ignored_keys: Counter[str] = field(default_factory=Counter)
    """The number of values of a key that has no column in the view."""
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What the policy refuses, or would refuse if it enforced, by publisher and reason."""
    damaged: int = 0
    """Spool elements that could not be read and were quarantined."""
    rejected: int = 0
    """Messages that no broker of a relay takes, kept in a directory of their own."""
    pauses: dict[str, float] = field(default_factory=dict)
    """The seconds for which brokers are not read, since their publishers exceed their rates.

    By broker, or by identity if the session answers.
    """
    outcomes: Mapping[int, MessageOutcome] = field(default_factory=dict)
    """Of the deliveries whose sessions answer, by position in the batch."""

    @property
    def rows(self) -> int:
        """The rows of all classes."""
        return self.rows_by_class.total()

    @property
    def duplicates(self) -> int:
        """The duplicates of all classes."""
        return self.duplicates_by_class.total()

    @property
    def all_loaded(self) -> bool:
        """Whether every record became a row, or every message was moved."""
        bad = self.dead_letters or self.summarised_dead_letters or self.rejected or self.damaged
        return not bad

    @property
    def refusals_by_publisher(self) -> dict[str, dict[str, int]]:
        """What the policy refuses, or would refuse, by publisher and then by reason."""
        counts: dict[str, dict[str, int]] = {}
        for (publisher, reason), count in self.refusals.items():
            counts.setdefault(publisher, {})[reason] = count
        return counts

    def add(self, batch: Sequence[Delivery], outcome: Tally) -> None:
        """Add the messages of a batch and their outcome."""
        self.messages += count_by_broker(batch)
        self.rows_by_class.update(outcome.rows_by_class)
        self.duplicates_by_class.update(outcome.duplicates_by_class)
        self.dead_letters.update(outcome.dead_letters)
        self.repeated_dead_letters += outcome.repeated_dead_letters
        self.summarised_dead_letters += outcome.summarised_dead_letters
        self.checks += outcome.checks
        self.rejected += outcome.rejected
        self.add_refusals(outcome.refusals)
        for key, count in outcome.ignored_keys.items():
            name = printable(key[:LONGEST_KEY])
            known = name in self.ignored_keys or len(self.ignored_keys) < MAX_KEYS
            self.ignored_keys[name if known else OTHERS] += count

    def add_refusals(self, refusals: Mapping[tuple[str, str], int]) -> None:
        """Add refused records, by publisher and reason."""
        for (publisher, reason), count in refusals.items():
            pair = printable(publisher), reason
            known = pair in self.refusals or len(self.refusals) < MAX_REFUSALS
            self.refusals[pair if known else (OTHERS, reason)] += count

    def as_json(self) -> dict[str, object]:
        """The document that a drain prints with `--json`."""
        return {
            "messages": self.messages.total(),
            "rows": self.rows,
            "duplicates": self.duplicates,
            "dead_letters": dict(self.dead_letters),
            "repeated_dead_letters": self.repeated_dead_letters,
            "summarised_dead_letters": self.summarised_dead_letters,
            "checks": self.checks,
            "ignored_keys": dict(self.ignored_keys),
            "refusals": self.refusals_by_publisher,
            "damaged_elements": self.damaged,
            "rejected_messages": self.rejected,
            "brokers": [{"broker": name, "messages": n} for name, n in self.messages.items()],
            "classes": [
                {"class": name, "rows": rows, "duplicates": self.duplicates_by_class[name]}
                for name, rows in self.rows_by_class.items()
            ],
        }

    def __str__(self) -> str:
        letters = plural(self.dead_letters.total(), "dead letter")
        parts = [rows_and_duplicates(self.rows, self.duplicates)]
        parts.append(f"{letters}{listed(self.dead_letters)}")
        if self.repeated_dead_letters:
            parts.append(f"{self.repeated_dead_letters} stored before")
        if self.summarised_dead_letters:
            parts.append(f"{self.summarised_dead_letters} only counted")
        if self.checks:
            parts.append(f"{self.checks} checks")
        if self.ignored_keys:
            parts.append(f"ignored keys{listed(self.ignored_keys)}")
        if self.rejected:
            parts.append(f"{self.rejected} rejected by the brokers")
        if self.damaged:
            parts.append(f"{self.damaged} damaged spool elements quarantined")
        messages = plural(self.messages.total(), "message")
        return f"{messages}{listed(self.messages)}: {', '.join(parts)}"


def listed(counts: Mapping[str, int]) -> str:
    """` (a: 1, b: 2)`, the most frequent first; empty without counts."""
    if not counts:
        return ""
    inside = ", ".join(f"{name}: {n}" for name, n in Counter(counts).most_common())
    return f" ({inside})"
