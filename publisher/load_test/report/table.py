"""The summary: a line per cell, printed as soon as it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from sam_pipeline.publisher.load_test.plan import size_text

COLUMNS = (
    ("scenario", 12),
    ("prod", -5),
    ("cons", -5),
    ("payload", -7),
    ("stored", 6),
    ("kind", 5),
    ("sent/s", -8),
    ("received/s", -10),
    ("per consumer", -12),
    ("kB/s", -8),
    ("median ms", -9),
    ("p99 ms", -8),
    ("max ms", -8),
    ("lost", -6),
    ("twice", -6),
    ("limit", 10),
)
"""Titles and widths; those below 0 are aligned to the right."""


def heading() -> list[str]:
    return [_line([title for title, _ in COLUMNS]), "  ".join("-" * abs(w) for _, w in COLUMNS)]


def row(document: Mapping[str, Any]) -> str:
    """The line of a cell."""
    return _line(cells(document))


def cells(document: Mapping[str, Any]) -> list[str]:
    """The text of each column."""
    lag = document["lag_ms"] or {}
    return [
        document["scenario"],
        str(document["producers"]),
        str(document["consumers"]),
        size_text(document["size_bytes"]),
        "yes" if document["persistent"] else "no",
        document["kind"],
        f"{document['sent_per_s']:.0f}",
        f"{document['received_per_s']:.0f}",
        f"{document['received_per_s_per_consumer']:.0f}",
        f"{document['payload_kb_per_s']:.0f}",
        ms_text(lag.get("median")),
        ms_text(lag.get("p99")),
        ms_text(lag.get("maximum")),
        str(document["lost"] or (f"+{document['late']}" if document["late"] else 0)),
        str(document["duplicates"]),
        document["processor"]["limited_by"],
    ]


def ms_text(value: Optional[float]) -> str:
    """Three digits are all that is known."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _line(texts: list[str]) -> str:
    padded = (
        text.rjust(-width) if width < 0 else text.ljust(width)
        for text, (_, width) in zip(texts, COLUMNS)
    )
    return "  ".join(padded).rstrip()
