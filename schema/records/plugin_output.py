"""The output of a plugin, split into summary, details and performance data.

The format is that of the monitoring plugins' guidelines: a line of text, then after a `|`
`'label'=value[UOM];warn;crit;min;max …`; then more lines, and after a `|` in them more such items,
to the end. A malformed item (a comma in a number, no value) is kept unchanged, so nothing is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from sam_pipeline.schema.records.performance_data import is_item, words


class Output(NamedTuple):
    summary: str
    details: str
    performance_data: str


def unescaped(text: str) -> str:
    """The text of `$LONGSERVICEOUTPUT$`, in which Nagios escapes line ends and backslashes.

    It escapes neither in its other macros. NRDP has all output of a check in this form.
    """
    return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))


def split_output(text: str) -> Output:
    """The parts, stripped; the items of performance data are separated by one blank."""
    first, _, more = text.strip().partition("\n")
    summary, _, items = first.partition("|")
    details, _, more_items = more.partition("|")
    # Long texts may draw tables with `|`: then some lines have no item.
    lines = [line for line in more_items.split("\n") if line.strip()]
    if not lines or not all(any(map(is_item, words(line))) for line in lines):
        details, more_items = more, ""
    performance_data = " ".join(words(f"{items}\n{more_items}"))
    return Output(summary.strip(), details.strip("\n").rstrip(), performance_data)
