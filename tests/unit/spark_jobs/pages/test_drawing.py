"""Verdicts on figures, names of pages and lines over months."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.pages.lines import line_chart
from sam_pipeline.spark_jobs.pages.verdict import (
    DOWNTIME,
    MET,
    MISSED,
    MISSING,
    PARTLY,
    UNKNOWN,
    Verdict,
    totals_of,
    verdict,
    worst_first,
)
from sam_pipeline.spark_jobs.pages.writer import group_page, site_page
from sam_pipeline.spark_jobs.rules.figures import Figure, Targets, figure_of
from sam_pipeline.spark_jobs.rules.seconds import Seconds

TARGETS = Targets()
STRICT = Targets(availability=Fraction(95), reliability=Fraction(80))


def day(site: str = "A", **hours: int) -> Figure:
    """A site's day of that many hours in each status."""
    return figure_of((site,), Seconds(**{name: 3600 * count for name, count in hours.items()}))


@pytest.mark.parametrize(
    ("hours", "targets", "expected"),
    [
        ({"ok": 24}, TARGETS, MET),
        ({"ok": 20, "unknown": 4}, TARGETS, PARTLY),
        ({"ok": 12, "critical": 12}, TARGETS, MISSED),
        ({"missing": 24}, TARGETS, MISSING),
        # Announced downtime alone is not a failure, but a failure beside it is.
        ({"ok": 12, "downtime": 12}, TARGETS, DOWNTIME),
        ({"ok": 10, "critical": 6, "downtime": 8}, TARGETS, MISSED),
        ({"ok": 22, "critical": 2}, STRICT, MISSED),
        # A site of which nearly nothing is known does not read as a failure.
        ({"missing": 23, "critical": 1}, TARGETS, MISSING),
        ({"unknown": 23, "critical": 1}, TARGETS, UNKNOWN),
    ],
)
def test_the_worst_missed_target_decides(
    hours: dict[str, int], targets: Targets, expected: Verdict
) -> None:
    assert verdict(day(**hours), targets) is expected
    # A group below its coverage target is never green.
    group = Figure(("VO", "ops"), Fraction(100), Fraction(100), sites_expected=2, sites_known=1)
    assert verdict(group, targets) is PARTLY


def test_announced_downtime_ranks_after_every_failure() -> None:
    figures = [
        day("B", ok=12, critical=12),
        day("A", ok=20, unknown=4),
        day("A", missing=24),
        day("A", downtime=24),
        day("C", ok=23, critical=1),
        day("A", ok=24),
        day("B", ok=24),
    ]

    assert sorted([*reversed(figures)], key=lambda f: worst_first(f, TARGETS)) == figures
    half_down, half_missed = day(ok=12, downtime=12), day(ok=20, critical=4)
    misses = [totals_of(f, TARGETS).reliability.misses for f in (half_down, half_missed)]
    assert misses == [False, True]


PAGE_NAMES = st.text(st.sampled_from("aAbB1-_~. /é\u0301eE") | st.characters(), max_size=100)


@given(PAGE_NAMES, PAGE_NAMES)
@example("CERN PROD", "CERN-PROD")
@example("CERN-PROD", "Cern-Prod")
@example("é", "e\u0301")
@example("INDEX", "CON")
@example("LPT1", "..")
@example("", "\udc1b")
def test_different_names_have_different_portable_pages_on_every_file_system(
    one: str, other: str
) -> None:
    def same_file(name: str) -> str:
        """What a file system that ignores case and normalises Unicode makes of the name."""
        return normalize("NFC", normalize("NFD", name).casefold())

    for page in (site_page, group_page):
        assert (same_file(page(one)) == same_file(page(other))) == (one == other)
    for name in (one, other):
        stem = site_page(name).removesuffix(".html")
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}(~[0-9a-f]{20})?", stem)
        assert not re.fullmatch(r"(?i)index|trends|changes|con|prn|aux|nul|com\d|lpt\d", stem)
        # No name takes the page of another by looking like it.
        assert stem == name or site_page(stem) != site_page(name)
    for plain in ("CERN-PROD", "INFN-T1", "GRIF_LAL", "A" * 80):
        assert site_page(plain) == f"{plain}.html"


MONTHS = [date(2026, month, 1) for month in (8, 9, 10)]
TARGET = Fraction(80)


def month(availability: int | None, reliability: int | None = None) -> Figure:
    values = (None if value is None else Fraction(value) for value in (availability, reliability))
    return Figure((), *values)


def test_lines_are_interrupted_by_months_without_a_figure_and_within_the_drawing() -> None:
    apart = line_chart(MONTHS, [month(90), None, month(95)], TARGET)
    connected = line_chart(MONTHS, [month(90, 99), month(None, 99), month(None, 99)], TARGET)
    extreme = line_chart(MONTHS, [month(0), month(100), None], TARGET)

    availability = apart.lines[-1]
    assert availability.d.count("M") == 2 and "L" not in availability.d
    assert (apart.is_worth_drawing, connected.is_worth_drawing) == (False, True)
    dots = extreme.lines[-1].dots.split("M")[1:]
    assert [int(point.split()[1].rstrip("h0") or 0) for point in dots] == [92, 8]
