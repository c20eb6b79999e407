"""What a plugin wrote, in three: the summary, the details and the performance data.

The form is that of the monitoring plugins' guidelines: a line of text, and after a `|`
`'label'=value[UOM];warn;crit;min;max …`; then more lines, and after a `|` in these more such
items, to the end. An item that is none (a comma in a number, no value) is kept as it was written:
nothing is lost, and what can be drawn of it is for whoever draws.
"""

from __future__ import annotations

from typing import NamedTuple

from sam_pipeline.schema.records.performance_data import is_item, words


class Output(NamedTuple):
    summary: str
    details: str
    performance_data: str


def split_output(text: str) -> Output:
    """Each part without blanks around it, the performance data with one blank between its items."""
    first, _, more = text.strip().partition("\n")
    summary, _, items = first.partition("|")
    details, _, more_items = more.partition("|")
    if not _is_performance_data(more_items):
        details, more_items = more, ""
    performance_data = " ".join(words(f"{items}\n{more_items}"))
    return Output(summary.strip(), details.strip("\n").rstrip(), performance_data)


def _is_performance_data(text: str) -> bool:
    """Long texts draw tables with `|` too: then they have lines without an item."""
    lines = [line for line in text.split("\n") if line.strip()]
    return bool(lines) and all(any(map(is_item, words(line))) for line in lines)
