"""CSV that is safe in spreadsheets: a quote is put before any cell that looks like a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

# Spreadsheets treat a cell that starts with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """The rows as lines of CSV, each with its line end."""
    body = io.StringIO()
    writer = csv.writer(body, lineterminator="\n")
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return body.getvalue()


def csv_table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows with a header, without a final line end; empty if there are no rows."""
    if not rows:
        return ""
    return csv_lines([rows[0], *(row.values() for row in rows)]).rstrip("\n")


def _cell(value: object) -> object:
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
