"""CSV that a spreadsheet shows as it is: a cell that it would calculate gets a quote in front."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_line(cells: Iterable[object]) -> str:
    """A line of CSV, with its end."""
    body = io.StringIO()
    csv.writer(body, lineterminator="\n").writerow([_cell(cell) for cell in cells])
    return body.getvalue()


def csv_table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows with a header, without the last line's end; nothing where there are no rows."""
    if not rows:
        return ""
    lines = [csv_line(rows[0]), *(csv_line(row.values()) for row in rows)]
    return "".join(lines).rstrip("\n")


def _cell(value: object) -> object:
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
