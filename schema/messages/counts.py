"""The outcome of messages in numbers: one value from the loader to metrics, status, JSON and log.

A new count is one field of `Counts`. Its metric, its place in documents and its words in texts
follow from its name, its help and its labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Optional

from sam_pipeline.schema.program.wording import plural, printable

OTHERS = "(others)"
"""Counts together the names beyond the limit of a count."""
MAX_KEYS = 100
LONGEST_KEY = 80
MAX_REFUSALS = 1000
MAX_LISTED = 100
"""How many names a text lists."""

_BY = "_by_"
_ALWAYS_SAID = ("rows_by_class", "duplicates_by_class", "dead_letters")


class Count(NamedTuple):
    """How a field of `Counts` is counted and shown."""

    help: str
    labels: tuple[str, ...] = ()
    """What it is counted by; the first one is a name that may come from a sender."""
    metric: str = ""
    """The name of its metric."""
    max_names: Optional[int] = None
    """The limit on names, since senders may invent any number; None if they can't choose them."""
    longest_name: Optional[int] = None


def counted(*args: Any, **options: Any) -> Any:
    """A field of Counts that starts at zero."""
    count = Count(*args, **options)
    return field(default_factory=Counter if count.labels else int, metadata={"count": count})


@dataclass
class Counts:
    """The outcome of some messages. A field `rows_by_class` counts rows; their sum is `rows`."""

    messages_by_broker: Counter[str] = counted("Messages committed and acked.", ("broker",))
    rows_by_class: Counter[str] = counted("Rows stored.", ("class",))
    duplicates_by_class: Counter[str] = counted(
        "Rows that changed nothing: they, or rows that take precedence, were already stored.",
        ("class",),
    )
    dead_letters: Counter[str] = counted("New dead letters.", ("reason",))
    repeated_dead_letters: int = counted("Dead letters that were stored before.")
    summarised_dead_letters: int = counted(
        "Dead letters beyond the limits on their senders, only counted in summaries."
    )
    checks: int = counted("Messages that only test the path.")
    ignored_keys: Counter[str] = counted(
        "Values of keys that have no column in the view.",
        ("key",),
        max_names=MAX_KEYS,
        longest_name=LONGEST_KEY,
    )
    refusals: Counter[tuple[str, str]] = counted(
        "Records that the policy refuses, or would refuse if it enforced.",
        ("publisher", "reason"),
        metric="refused",
        max_names=MAX_REFUSALS,
    )
    damaged_elements: int = counted("Spool elements that could not be read and were quarantined.")
    rejected_messages: int = counted(
        "Messages of a relay that no broker took, kept in a directory of their own."
    )

    @property
    def messages(self) -> int:
        """The messages of all brokers."""
        return sum(self.messages_by_broker.values())

    @property
    def rows(self) -> int:
        """The rows of all classes."""
        return sum(self.rows_by_class.values())

    @property
    def duplicates(self) -> int:
        """The duplicates of all classes."""
        return sum(self.duplicates_by_class.values())

    @property
    def all_loaded(self) -> bool:
        """Whether every record became a row, or every message was moved."""
        bad = self.dead_letters or self.summarised_dead_letters
        return not (bad or self.rejected_messages or self.damaged_elements)

    def __iadd__(self, other: Counts) -> Counts:
        for item in fields(self):
            mine, more = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, Counter):
                mine.update(more)
            else:
                setattr(self, item.name, mine + more)
        return self

    def printable_for(self, total: Counts) -> Counts:
        """The counts to add to a total that a process keeps, since senders choose names.

        They are printable, and beyond the limit of a count they are OTHERS.
        """
        bounded = Counts()
        bounded += self
        for name, count, numbers in self.described():
            if count.max_names is None:
                continue
            limited, known = Counter[Any](), set(getattr(total, name))
            for (first, *rest), number in numbers.items():
                shown = printable(first[: count.longest_name])
                key = (shown, *rest) if rest else shown
                if key not in known and len(known) >= count.max_names:
                    key = (OTHERS, *rest) if rest else OTHERS
                known.add(key)
                limited[key] += number
            setattr(bounded, name, limited)
        return bounded

    def described(self) -> Iterator[tuple[str, Count, Mapping[tuple[str, ...], int]]]:
        """Each count: its name, how it is counted, and its numbers by the values of its labels."""
        for item in fields(self):
            count, value = item.metadata["count"], getattr(self, item.name)
            count = count._replace(metric=count.metric or item.name.partition(_BY)[0])
            if not count.labels:
                value = {(): value}
            elif len(count.labels) == 1:
                value = {(name,): number for name, number in value.items()}
            yield item.name, count, value

    def document(self) -> dict[str, Any]:
        """The counts for JSON: `rows_by_class` by name, and their sum as `rows`."""
        document: dict[str, Any] = {}
        for name, count, numbers in self.described():
            if not count.labels:
                document[name] = numbers[()]
                continue
            total, _, label = name.partition(_BY)
            if label:
                document[total] = sum(numbers.values())
            document[name] = {}
            for (first, *rest), number in numbers.items():
                if rest:
                    document[name].setdefault(first, {})[rest[0]] = number
                else:
                    document[name][first] = number
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Counts:
        """The inverse of `document`; raises KeyError, TypeError or AttributeError if it is not."""
        counts = cls()
        for name, count, _ in counts.described():
            value = document[name]
            if len(count.labels) > 1:
                pairs = ((first, inner) for first, inner in value.items())
                value = {(first, key): n for first, inner in pairs for key, n in inner.items()}
            setattr(counts, name, Counter(value) if count.labels else value)
        return counts

    def texts(self) -> list[str]:
        """`3 rows`, `0 duplicates`, `1 dead letter (bad-status: 1)`, and all other counts but 0."""
        texts = []
        for name, count, numbers in self.described():
            number, (what, _, label) = sum(numbers.values()), name.partition(_BY)
            if name == "messages_by_broker" or not (number or name in _ALWAYS_SAID):
                continue
            by_name = Counter[str]()
            for (first, *_), n in numbers.items() if count.labels and not label else ():
                by_name[first] += n
            texts.append(f"{plural(number, what.replace('_', ' ')[:-1])}{listed(by_name)}")
        return texts

    def __str__(self) -> str:
        brokers = listed(self.messages_by_broker)
        return f"{plural(self.messages, 'message')}{brokers}: {', '.join(self.texts())}"


def listed(counts: Mapping[str, int]) -> str:
    """` (a: 1, b: 2)`, the most frequent first; empty without counts."""
    if not counts:
        return ""
    inside = ", ".join(f"{name}: {n}" for name, n in Counter(counts).most_common(MAX_LISTED))
    return f" ({inside}{', …' if len(counts) > MAX_LISTED else ''})"
