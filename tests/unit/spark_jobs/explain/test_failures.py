"""Pages and explanations show the same failures: what cost availability, and what did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.explain.as_json import causes_json, day_json
from sam_pipeline.spark_jobs.explain.as_text import cause_lines, day_lines
from sam_pipeline.spark_jobs.explain.causes import COSTLY, WITHOUT_EFFECT
from sam_pipeline.spark_jobs.explain.explanation import seconds_of
from sam_pipeline.spark_jobs.explain.results import NO_RESULT, NOT_STORED
from sam_pipeline.spark_jobs.explain.selection import Selection
from sam_pipeline.spark_jobs.explain.ticket import ticket
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.site import explained_days, site_view
from sam_pipeline.spark_jobs.pages.writer import PageFiles
from sam_pipeline.spark_jobs.profiles.profile import Range, Threshold
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.targets import PeriodTargets
from tests.support.reports.site_day import DAY, StoredDay, at

ALL = Selection("A")
DOWNTIME = Downtime("GOC-1", "A", "", "", at("00:00"), at("24:00"), "SCHEDULED", "OUTAGE", "")


@pytest.fixture
def stored(tmp_path: Path) -> StoredDay:
    return StoredDay(tmp_path)


def page(stored: StoredDay, out: Path) -> str:
    """The site's page of a month in which only this day was computed."""
    month = Month(
        "test",
        Period(DAY, DAY),
        "test/2026-11",
        [stored.run],
        "",
        PeriodTargets(stored.profile),
        announcers=stored.announcers,
    )
    of_site = [segment for segment in stored.segments if segment.level == SITE]
    figure = DayFigure(DAY, ("A",), seconds_of(of_site))
    timelines = {DAY: Timelines(stored.segments, stored.profile)}
    site_days = explained_days(month, "A", timelines, stored.results_of)
    view = site_view(month, [figure], site_days)
    PageFiles(out).write("page.html", "site.html", view=view, month=month)
    return (out / "page.html").read_text()


def counts(stored: StoredDay, tmp_path: Path) -> tuple[str, str]:
    """The numbers of failures of both classes, the same on the page, in text, ticket and JSON."""
    day = stored.day()
    costly, without_effect = (
        next(line for line in cause_lines(day, ALL) if line.startswith(title))
        for title in (COSTLY, WITHOUT_EFFECT)
    )
    html, lines = page(stored, tmp_path), ticket(day, ALL, Targets())
    for heading in (costly, without_effect):
        is_there = f"{heading[0].upper()}{heading[1:]}<" in html
        assert is_there == (": 0 failures" not in heading)
        assert any(line.startswith(heading) for line in lines) == is_there
        assert f"  {heading}" in day_lines(day, ALL)
    grouped, whole = causes_json(day, ALL), day_json(day, ALL)
    for heading, causes, total in (
        (costly, grouped["causes"], whole["failures"]),
        (without_effect, grouped["causes_without_effect"], whole["failures_without_effect"]),
    ):
        assert sum(cause["count"] for cause in causes) == total
        assert f": {total} failure" in heading
    return costly.removeprefix(f"{COSTLY}: "), without_effect.removeprefix(f"{WITHOUT_EFFECT}: ")


def hours(first: int, last: int) -> Sequence[str]:
    return [f"{hour:02}:00" for hour in range(first, last)]


def test_a_day_wholly_in_downtime_has_only_failures_without_effect(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-24:00 DOWNTIME")
    stored.segments = [segment for segment in stored.segments if segment.level != "metric"]
    for metric in ("ping", "submit"):
        stored.segment("metric", f"CE h1 {metric}", "00:00-24:00 CRITICAL")
        for time in hours(0, 24):
            stored.result(f"CE h1 {metric}", time, "CRITICAL")
    stored.downtimes = [DOWNTIME]

    assert counts(stored, tmp_path) == ("0 failures, 0 causes", "48 failures, 2 causes")


def test_a_day_partly_in_downtime_has_failures_of_both_classes(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-06:00 OK", "06:00-18:00 DOWNTIME", "18:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-12:00 OK", "12:00-24:00 CRITICAL")
    for time in hours(12, 24):
        stored.result("CE h1 submit", time, "CRITICAL")
    stored.downtimes = [replace(DOWNTIME, start=at("06:00"), end=at("18:00"))]

    assert counts(stored, tmp_path) == ("6 failures, 1 cause", "6 failures, 1 cause")


def test_a_failure_while_its_metric_was_excluded_has_no_effect(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-06:00 CRITICAL", "06:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-06:00 CRITICAL", "06:00-24:00 EXCLUDED")
    for time in ("05:00", "07:00", "08:00"):
        stored.result("CE h1 submit", time, "CRITICAL")
    stored.result("CE h1 submit", "09:00", "OK")
    times = (at("06:00"), at("24:00"))
    stored.exclusions = [Exclusion(7, "metric", "", "submit", "", "", "", *times, "why", "ada")]

    assert counts(stored, tmp_path) == ("1 failure, 1 cause", "2 failures, 1 cause")


def test_a_failure_while_its_site_was_excluded_has_no_effect(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-12:00 CRITICAL", "12:00-24:00 OK")
    stored.segments = [segment for segment in stored.segments if segment.level != SITE]
    stored.segment(SITE, "", "00:00-06:00 UNKNOWN", "06:00-12:00 CRITICAL", "12:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-12:00 CRITICAL", "12:00-24:00 OK")
    for time in ("00:00", "03:00", "06:00", "09:00"):
        stored.result("CE h1 submit", time, "CRITICAL")
    times = (at("00:00"), at("06:00"))
    stored.exclusions = [Exclusion(9, "group", "", "", "A", "", "", *times, "flood", "ada")]

    assert counts(stored, tmp_path) == ("2 failures, 1 cause", "2 failures, 1 cause")


def test_results_of_an_excluded_monitoring_host_are_not_failures(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-06:00 OK", "06:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-06:00 OK", "06:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "03:00", "CRITICAL", monitoring_host="broken")
    stored.result("CE h1 submit", "06:00", "CRITICAL")
    stored.result("CE h1 submit", "09:00", "CRITICAL", monitoring_host="broken")
    times = (at("00:00"), at("24:00"))
    stored.exclusions = [
        Exclusion(3, "monitoring-host", "broken", "", "", "", "", *times, "why", "ada")
    ]

    assert counts(stored, tmp_path) == ("1 failure, 1 cause", "0 failures, 0 causes")


def test_an_endpoint_beside_a_good_one_fails_without_effect(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-12:00 OK", "12:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-12:00 OK", "12:00-24:00 CRITICAL")
    stored.segment("endpoint", "CE h2", "00:00-24:00 MISSING")
    for metric in ("ping", "submit"):
        stored.segment("metric", f"CE h2 {metric}", "00:00-06:00 CRITICAL", "06:00-24:00 MISSING")
    stored.result("CE h1 submit", "12:00", "CRITICAL")
    stored.result("CE h2 submit", "00:00", "CRITICAL")
    stored.result("CE h2 ping", "00:00", "CRITICAL")

    # From noon on neither was up: either of them would have been enough.
    assert counts(stored, tmp_path) == ("3 failures, 3 causes", "2 failures, 2 causes")
    costly = [failure for failure in stored.day().failures if failure.costs]
    assert [(failure.host_name, failure.text) for failure in costly] == [
        ("h1", "CRITICAL says submit"),
        ("h2", NO_RESULT),
        ("h2", NO_RESULT),
    ]


def test_a_warning_costs_nothing_unless_the_operation_folds_it_to_worse(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-12:00 WARNING", "12:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 WARNING")
    for time in ("00:00", "06:00", "12:00"):
        stored.result("CE h1 submit", time, "WARNING")

    assert counts(stored, tmp_path) == ("1 failure, 1 cause", "2 failures, 1 cause")


def test_a_failure_whose_result_was_pruned_is_still_counted(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")

    assert counts(stored, tmp_path) == ("1 failure, 1 cause", "0 failures, 0 causes")
    assert [failure.text for failure in stored.day().failures] == [NOT_STORED]


def test_the_page_says_where_a_threshold_decided_the_status(
    stored: StoredDay, tmp_path: Path
) -> None:
    limits = Range(Fraction(0), Fraction(30)), Range(Fraction(0), Fraction(60))
    stored.profile = replace(stored.profile, thresholds=(Threshold("submit", "time", *limits),))
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "00:00", "OK", performance_data="time=72s")

    html = page(stored, tmp_path)

    text = "sent as OK; time=72s triggers the threshold critical 60 of submit"
    assert text in html
    assert f"({text})" in "\n".join(day_lines(stored.day(), ALL))
    [cause] = causes_json(stored.day(), ALL)["causes"]
    assert cause["example"]["threshold"] == text
    assert counts(stored, tmp_path) == ("1 failure, 1 cause", "0 failures, 0 causes")


def test_the_page_names_who_sent_a_result(stored: StoredDay, tmp_path: Path) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "00:00", "CRITICAL", publisher="uid:<1000>")

    assert "message m-00:00 from uid:&lt;1000&gt;" in page(stored, tmp_path)


def test_the_page_does_not_name_an_anonymous_sender(stored: StoredDay, tmp_path: Path) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "00:00", "CRITICAL", publisher="anonymous")

    html = page(stored, tmp_path)

    assert "message m-00:00" in html
    assert "anonymous" not in html


def test_page_and_explanation_name_who_announced_a_downtime(
    stored: StoredDay, tmp_path: Path
) -> None:
    stored.everywhere("00:00-24:00 DOWNTIME")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 OK")
    stored.downtimes = [DOWNTIME]
    stored.announcers = {DOWNTIME: "key:goc"}

    text = "(counts, announced by key:goc)"
    assert text in "\n".join(day_lines(stored.day(), ALL))
    assert text in page(stored, tmp_path)
    [downtime] = day_json(stored.day(), ALL)["downtimes"]
    assert downtime["publisher"] == "key:goc"
