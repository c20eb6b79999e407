"""Failures of one cause are one line, although the texts of probes vary."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.explain.causes import (
    CauseList,
    Failure,
    _masked,
    causes,
    masked,
    merged,
)
from sam_pipeline.spark_jobs.explain.incidents.figures import figures_of
from sam_pipeline.spark_jobs.explain.incidents.incident import (
    Incident,
    find_incidents,
    with_causes,
)
from sam_pipeline.spark_jobs.explain.incidents.shared_causes import shared_causes
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import Segment
from tests.support.reports.site_day import at

FAILURE = Failure("CE", "ce01.example.org", "submit", "CRITICAL", 1000, "down", "message-1")
WORDS = """
ce01|ce02|ce01.example.org|CE1|HTTP|500|HTTP/1.1|exit code 3|errno|12:30:05|Oct|3|0x1f|-5|v1.2.3
2026-10-11T10:00Z|5xabcdef12|ab12cd34|/tmp/x9/y|fe80::1|10.0.0.1|(782|srm2:8446/x
"""


def test_a_cause_has_count_times_endpoints_and_the_newest_message() -> None:
    failures = [
        replace(FAILURE, at=3000, message_id="", host_name="ce03.example.org"),
        replace(FAILURE, at=2000, message_id="message-2", host_name="ce02.example.org"),
        replace(FAILURE, at=1000),
        replace(FAILURE, at=1500),
    ]

    [cause] = causes(failures)

    assert (cause.count, cause.first, cause.last, cause.endpoints) == (4, 1000, 3000, 3)
    assert cause.example == failures[1]


def test_causes_differ_by_flavour_metric_status_and_text_the_most_harmful_first() -> None:
    for name, value in (
        *(("service_flavour", "SRM"), ("metric_name", "ping")),
        *(("status", "UNKNOWN"), ("text", "up")),
    ):
        assert len(causes([FAILURE, replace(FAILURE, **{name: value})])) == 2  # type: ignore[arg-type]
    mixed = [
        *[replace(FAILURE, status="WARNING")] * 9,
        *[replace(FAILURE, status="MISSING", text="no result")] * 2,
        *[replace(FAILURE, text="rare")],
        *[replace(FAILURE, text="frequent")] * 3,
    ]
    assert [cause.text for cause in causes(mixed)] == ["frequent", "rare", "no result", "down"]
    assert causes([]) == []


def test_texts_that_differ_in_the_plural_of_what_they_count_are_one_cause() -> None:
    for singular, plural, text in (
        ("refused (1 try)", "refused (2 tries)", "refused (* tries)"),
        ("1 match of b", "3 matches of b", "* matches of b"),
    ):
        one, several = (causes([replace(FAILURE, text=said)]) for said in (singular, plural))
        of_days = {
            date(2026, 11, 1): [CauseList("", one)],
            date(2026, 11, 2): [CauseList("", several)],
        }
        [(of_two_days, days_of)] = merged(of_days)
        assert [(cause.text, cause.count) for cause in of_two_days.causes] == [(text, 2)]
        assert list(days_of.values()) == [list(of_days)]


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("timed out after 30 s", "timed out after * s"),
        ("connect to ce01.example.org:8443: refused", "connect to *: refused"),
        ("host alpha.example.org is down.", "host * is down."),
        ("no route to [2001:db8::17]:443 or fe80::1%eth0", "no route to [*]:* or *"),
        ("since 2026-11-14T09:12:03.123456+01:00", "since *"),
        ("since Sat Nov 14 09:12:03 CET 2026 only", "since * only"),
        ("id 6ba7b810-9dad-11d1-80b4-00c04fd430c8 unknown", "id * unknown"),
        ("commit deadbeefcafe and 0xdeadbeef", "commit * and *"),
        ("job https://wms.example.org:9000/aBcDeFgHiJkLmNoPqRsTuV gone", "job https://*/* gone"),
        ("cannot read /tmp/tmpAbCdEf/result", "cannot read /tmp/*"),
        ("cannot read /data/run_17/out.3: denied", "cannot read /data/run_*/out.*: denied"),
        ("java.lang.NullPointerException in MyJobSubmissionService", None),
        ("HTTP/1.1 404 not found, exit code 137", None),
        ("Décembre: süß, 東京 ≠ 大阪 🙂", None),
        ("{} {0} %s %(name)s \\1 \\g<0>", "{} {*} %s %(name)s \\* \\g<*>"),
        ("first\nsecond\r\n\tthird\x00\x1b[31m\u2028last\n", "first second third [* last"),
        ("x" * 200, None),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_varying_parts_are_masked_and_the_others_stay(text: str, expected_text: str | None) -> None:
    assert masked(text) == (text if expected_text is None else expected_text)
    # An endpoint is masked by its own name, even a short one.
    assert masked("alpha refused: ALPHA.grid is full", "alpha.grid") == "* refused: * is full"


@pytest.mark.parametrize(
    "piece",
    ["a_", "a.", "a-", "1", "*,", "* . ", "::", "0f", "aA", "/", "Mon ", "exit ", "ab:", "("],
)
def test_no_text_takes_long(piece: str) -> None:
    began = time.process_time()

    for _ in range(5):
        masked(piece * (10_000 // len(piece)) + "!")

    assert time.process_time() - began < 1


@given(
    st.lists(st.sampled_from(re.split(r"[|\n]", WORDS)) | st.text(max_size=12), max_size=6).map(
        " ".join
    ),
    st.sampled_from(["", "ce01.example.org", "ce1", "1", "srm2.example.org"])
    | st.text(max_size=20),
)
@example("ce02 refused", "ce01.example.org")
@example("exit code 3", "")
def test_any_text_is_masked_by_its_shape_as_if_its_digits_mattered_to_one_short_line(
    text: str, host_name: str
) -> None:
    line = masked(text, host_name)

    assert line == _masked(text, host_name)
    assert len(line) <= 200
    assert not any(character in line for character in "\n\r\t\0\x1b\u2028")


# Incidents: their begin and end, their figures, and causes that sites share -----------------------


HOUR = 3600
START = at("00:00")


def segments(*stretches: str) -> list[Segment]:
    """Segments of site A; hours after 24 are of the next day."""
    found = []
    for stretch in stretches:
        times, status = stretch.split()
        start, end = (START + int(hour) * HOUR for hour in times.split("-"))
        found.append(Segment(moment(start).date(), SITE, ("A",), start, end, status))
    return found


def incident(site: str, start: str, end: str, *failures: Failure) -> Incident:
    return with_causes(Incident(site, at(start), at(end), False, False), failures)


def failure(text: str, start: str, end: str, **more: object) -> Failure:
    of_cause = ("CE", "h1", "ping", "CRITICAL", at(start), text, "m-1")
    return Failure(*of_cause, until=at(end), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stretches", "hours"),
    [
        ("0-6 OK, 6-24 CRITICAL, 24-30 CRITICAL, 30-48 OK", [(6, 30)]),  # it goes on over midnight
        *(
            (f"5-6 CRITICAL, 6-7 {status}, 7-9 CRITICAL, 9-24 OK", [(5, 9)])
            for status in ("UNKNOWN", "MISSING", "EXCLUDED")
        ),
        *(
            (f"5-6 CRITICAL, 6-7 {status}, 7-9 CRITICAL, 9-24 OK", [(5, 6), (7, 9)])
            for status in ("OK", "WARNING", "DOWNTIME")
        ),
        ("5-6 CRITICAL, 6-9 MISSING, 9-24 OK", [(5, 6)]),
        ("0-24 CRITICAL, 48-72 CRITICAL", [(0, 24), (48, 72)]),  # a day without figures ends it
    ],
)
def test_an_incident_lasts_until_its_last_critical_second_before_the_site_is_seen_up(
    stretches: str, hours: list[tuple[int, int]]
) -> None:
    incidents = find_incidents("A", segments(*stretches.split(", ")), START)

    assert [((i.start - START) // HOUR, (i.end - START) // HOUR) for i in incidents] == hours


def test_an_incident_is_open_until_the_site_was_seen_up() -> None:
    ends = ("8-24 CRITICAL", "8-24 MISSING", "8-24 OK", "8-24 DOWNTIME")
    found = [find_incidents("A", segments("0-7 OK", "7-8 CRITICAL", end), START) for end in ends]

    assert [one.is_open for [one] in found] == [True, True, False, False]


def test_incidents_that_reach_beyond_the_period_do_not_count_in_the_mean_time_to_repair() -> None:
    incidents = find_incidents(
        "A",
        segments("0-2 CRITICAL", "2-8 OK", "8-9 CRITICAL", "9-20 OK", "20-24 CRITICAL"),
        START,
    )
    figures = figures_of(incidents, 17 * HOUR)

    assert [one.began_before for one in incidents] == [True, False, False]
    assert (figures.number, figures.open, figures.mttr_s) == (3, 1, HOUR)
    assert (figures.longest_s, figures.total_s) == (4 * HOUR, 7 * HOUR)
    assert figures.mtbf_s == 17 * HOUR // 3
    nothing = figures_of([], 86_400)
    assert (nothing.number, nothing.mttr_s, nothing.mtbf_s) == (0, None, None)


def test_only_failures_that_cost_availability_during_an_incident_are_its_causes() -> None:
    found = incident(
        "A",
        "10:00",
        "12:00",
        failure("began before, held on", "08:00", "11:00"),
        failure("over before", "08:00", "10:00"),
        failure("after", "12:00", "13:00"),
        failure("made up for", "10:30", "11:00", costs=False),
    )

    assert [cause.text for cause in found.causes] == ["began before, held on"]
    # A failure that lasts over midnight is counted once.
    halves = failure("down", "~23:00", "00:00"), failure("down", "~23:00", "02:00")
    assert [cause.count for cause in incident("A", "~23:00", "02:00", *halves).causes] == [1]


def test_sites_whose_incidents_overlap_in_time_and_cause_share_it() -> None:
    def at_once(text: str, *incidents: str) -> Sequence[Incident]:
        times = (one.split() for one in incidents)
        return [incident(site, start, end, failure(text, start, end)) for site, start, end in times]

    [one] = shared_causes(
        [
            *at_once("no host ce1.a.org", "A 10:00 12:00", "D 14:00 15:00"),
            *at_once("no host ce7.b.org", "B 11:00 13:00"),
            *at_once("disk full", "C 11:00 13:00"),
        ]
    )
    chain = shared_causes(at_once("slow", "A 10:00 12:00", "B 11:00 14:00", "C 13:00 15:00"))

    assert (one.sites, one.start, one.end) == (["A", "B"], at("11:00"), at("12:00"))
    assert [shared.sites for shared in chain] == [["A", "B"]]  # those that failed at once
    assert shared_causes(at_once("slow", "A 10:00 11:00", "A 11:00 12:00")) == []
