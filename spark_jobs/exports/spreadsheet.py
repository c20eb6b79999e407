"""CSV that a spreadsheet shows as it is: a cell that it would calculate gets a quote in front."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Lines of CSV, each with its end."""
    body = io.StringIO()
    writer = csv.writer(body, lineterminator="\n")
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return body.getvalue()


def csv_table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows with a header, without the last line's end; nothing where there are no rows."""
    if not rows:
        return ""
    return csv_lines([rows[0], *(row.values() for row in rows)]).rstrip("\n")


def _cell(value: object) -> object:
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
