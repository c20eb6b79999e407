"""Each segment that is not OK names its reasons: children, results, downtimes, exclusions."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.cli import make_parser
from sam_pipeline.spark_jobs.explain.as_json import causes_json
from sam_pipeline.spark_jobs.explain.as_text import cause_lines, day_lines, explain_command
from sam_pipeline.spark_jobs.explain.causes import Failure, _masked, causes, masked
from sam_pipeline.spark_jobs.explain.explanation import Selection
from sam_pipeline.spark_jobs.explain.results import NO_RESULT, NOT_STORED
from sam_pipeline.spark_jobs.explain.ticket import ticket
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Range, Threshold
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import METRIC
from tests.support.reports.site_day import DAY, StoredDay, at

ALL = Selection("A")
SUBMIT = "CE h1 submit"
TWO_HOURS = ('validity_s = "off"', "validity_s = 7200")
THREE_DAYS = ('validity_s = "off"', "validity_s = 259200")


def text_of(stored: StoredDay, selection: Selection = ALL) -> str:
    return "\n".join(day_lines(stored.day(), selection))


def lines(stored: StoredDay) -> Sequence[str]:
    return [line.strip() for line in day_lines(stored.day(), ALL)]


def ticket_of(stored: StoredDay, selection: Selection = ALL) -> list[str]:
    return list(ticket(stored.day(), selection, Targets()))


def downtime(start: str, end: str, number: int = 1, **more: str) -> Downtime:
    names = {"site": "A", "host_name": "h1", "description": "new\nkernel", **more}
    plain = Downtime(f"GOC-{number}", "", "", "", at(start), at(end), "SCHEDULED", "OUTAGE", "")
    return replace(plain, **names)


def exclusion(number: int, kind: str, start: str, end: str, **names: str) -> Exclusion:
    plain = Exclusion(number, kind, "", "", "", "", "", at(start), at(end), "it\nbroke", "ada")
    return replace(plain, **names)


def fill(
    stored: StoredDay, everywhere: str, metric: str = "", results: str = "", **more: str
) -> StoredDay:
    """Add segments of all levels, segments of metric submit, and its results: "06:00 CRITICAL"."""
    stored.everywhere(*everywhere.split("; "))
    stored.segment("metric", SUBMIT, *(metric or everywhere).split("; "))
    for result in filter(None, results.split("; ")):
        time, status, *host = result.split()
        who = {"monitoring_host": host[0]} if host else {}
        stored.result(SUBMIT, time, status, **who, **more)
    return stored


@pytest.fixture
def stored(tmp_path: Path) -> StoredDay:
    return StoredDay(tmp_path)


def test_a_sites_segment_leads_down_to_the_metric_and_its_publisher(stored: StoredDay) -> None:
    day = "00:00-06:00 OK; 06:00-07:00 CRITICAL; 07:00-24:00 OK"
    fill(stored, day, results="06:00 CRITICAL; 06:30 CRITICAL", publisher="key:nagios-a")

    text, site = text_of(stored), lines(stored)

    cause = "because function compute is CRITICAL: service CE: endpoint h1: metric submit"
    assert site[site.index("06:00:00-07:00:00 CRITICAL") + 1] == cause
    assert "availability = 100 x (OK 82800 + WARNING 0) / (86400 - not known 0) = 95.83333" in text
    sent = "m-06:00 from key:nagios-a"
    assert f"2026-11-14T06:00:00Z CRITICAL CRITICAL says submit ({sent})" in site
    assert any("m-06:30 from key:nagios-a" in line for line in ticket_of(stored))
    [found] = causes_json(stored.day(), ALL)["causes"]
    assert found["example"]["publisher"] == "key:nagios-a"
    stored.results = [replace(result, publisher="anonymous") for result in stored.results]
    assert "anonymous" not in "\n".join([text_of(stored), *ticket_of(stored)])


def test_only_the_children_that_decide_are_named_and_when(stored: StoredDay) -> None:
    # A profile's own operation may fold CRITICAL and OK to WARNING, which no child has.
    day = "00:00-08:00 CRITICAL", "08:00-12:00 WARNING", "12:00-24:00 OK"
    stored.segment("site", "", *day)
    compute = "00:00-04:00 CRITICAL; 04:00-10:00 OK; 10:00-12:00 WARNING; 12:00-24:00 OK"
    storage = "00:00-04:00 WARNING; 04:00-10:00 CRITICAL; 10:00-12:00 UNKNOWN"
    stored.segment("function", "compute", *compute.split("; "))
    stored.segment("function", "storage", *storage.split("; "))

    [site, *_] = stored.day().things

    assert [[(d.names[-1], d.start) for d in reason.deciding] for reason in site.reasons] == [
        [("compute", at("00:00")), ("storage", at("04:00"))],
        [("storage", at("04:00")), ("compute", at("10:00"))],
    ]
    assert "because function storage is CRITICAL 04:00:00-08:00:00" in text_of(stored)


@pytest.mark.parametrize(
    ("segments", "results", "expected"),
    [
        (
            "00:00-08:00 OK; 08:00-09:00 MISSING; 09:00-24:00 OK",
            "05:00 OK; 06:00 OK; 09:00 OK",
            "2026-11-14T06:00:00Z OK OK says submit (m-06:00), was valid for 2 h|MISSING since",
        ),
        (
            "00:00-08:00 OK; 08:00-24:00 MISSING",
            "05:00 UNKNOWN; 06:00 OK n1; 06:00 CRITICAL n2; 06:00 WARNING n3",
            "the last one, 2026-11-14T06:00:00Z CRITICAL",  # the worse one of that second
        ),
        ("00:00-24:00 MISSING", "", "no result since 2026-11-13T00:00:00Z ("),
        (
            "00:00-24:00 CRITICAL",
            "~21:00 CRITICAL; ~22:00 CRITICAL",
            "2026-11-13T22:00:00Z CRITICAL CRITICAL says submit (m-~22:00)",
        ),
    ],
)
def test_missing_and_earlier_results_are_explained(
    tmp_path: Path, segments: str, results: str, expected: str
) -> None:
    stored = fill(StoredDay(tmp_path, TWO_HOURS), segments, results=results)

    [line] = {line for line in lines(stored) if all(part in line for part in expected.split("|"))}
    assert line and "21:00:00Z" not in text_of(stored)


@pytest.mark.parametrize(
    ("segments", "results", "expected"),
    [
        ("00:00-24:00 MISSING", "", "no result since 2026-11-11T00:00:00Z ("),
        (
            "00:00-24:00 CRITICAL",
            "~~~20:00 CRITICAL; ~~~21:00 CRITICAL; ~~20:00 OK m1",
            "2026-11-11T21:00:00Z CRITICAL",
        ),
        (
            "00:00-18:00 OK; 18:00-24:00 MISSING",
            "~~~18:00 OK; ~~~~23:59 CRITICAL",
            "the last one, 2026-11-11T18:00:00Z OK|was valid for 3 d",
        ),
    ],
)
def test_with_a_validity_of_days_the_results_of_earlier_days_are_explained(
    tmp_path: Path, segments: str, results: str, expected: str
) -> None:
    stored = fill(StoredDay(tmp_path, THREE_DAYS), segments, results=results)
    excluded = {"monitoring_host": "m1"}
    stored.exclusions = [exclusion(1, MONITORING_HOST, "~~19:00", "~~20:00", **excluded)]

    [line] = {line for line in lines(stored) if all(part in line for part in expected.split("|"))}
    assert line and "20:00:00Z CRITICAL" not in text_of(stored)
    assert ("ignored: CE h1 submit 2026-11-12T20:00:00Z" in text_of(stored)) == ("m1" in results)


def test_the_cause_of_a_time_without_results_shows_its_start_and_end(stored: StoredDay) -> None:
    fill(stored, "00:00-12:00 MISSING; 12:00-24:00 OK")
    stored.segment("endpoint", "SRM h2", "12:00-24:00 MISSING")
    stored.segment("metric", "SRM h2 put", "12:00-24:00 MISSING")

    grouped = "\n".join(cause_lines(stored.day(), ALL))

    assert "1 x MISSING CE submit 00:00:00-12:00:00 at h1: no result" in grouped
    assert "1 x MISSING SRM put 12:00:00-24:00:00 at h2: no result" in grouped
    assert "1 x MISSING CE submit, 00:00:00 to 12:00:00 at h1" in "\n".join(ticket_of(stored))


def test_a_cause_that_began_before_the_day_shows_its_dates(stored: StoredDay) -> None:
    fill(stored, "00:00-24:00 CRITICAL", results="~23:50 CRITICAL; 23:33 CRITICAL")

    times = "2026-11-13T23:50:00Z to 2026-11-14T23:33:00Z"
    assert f"2 x CRITICAL CE submit {times} at h1" in "\n".join(cause_lines(stored.day(), ALL))
    assert f"2 x CRITICAL CE submit, {times} at h1" in "\n".join(ticket_of(stored))


def test_a_threshold_shows_the_status_it_changed_and_its_rule(stored: StoredDay) -> None:
    limits = Range(Fraction(0), Fraction(30)), Range(None, Fraction("60.5"))
    stored.profile = replace(stored.profile, thresholds=(Threshold("submit", "time", *limits),))
    fill(stored, "00:00-24:00 CRITICAL", results="00:00 OK", performance_data="time=72s")

    said = "sent as OK; time=72s triggers the threshold critical ~:60.5 of submit"
    line = f"2026-11-14T00:00:00Z CRITICAL ({said}) OK says submit (m-00:00)"
    assert line in lines(stored)
    [cause] = causes_json(stored.day(), ALL)["causes"]
    assert cause["example"]["threshold"] == said


def test_a_failure_behind_several_segments_is_listed_once(stored: StoredDay) -> None:
    times = ("~23:00", "05:00", "06:10", "06:30", "08:00")
    fill(
        stored,
        "00:00-06:00 CRITICAL; 06:00-07:00 DOWNTIME; 07:00-12:00 CRITICAL; 12:00-24:00 OK",
        "00:00-12:00 CRITICAL; 12:00-24:00 OK",
        "; ".join(f"{time} CRITICAL" for time in times),
    )
    stored.downtimes = [downtime("06:00", "07:00")]

    # 06:10 was in the downtime; 06:30, too, but it still held after it.
    assert [(failure.message_id, failure.costs) for failure in stored.day().failures] == [
        (f"m-{time}", time != "06:10") for time in times
    ]


@pytest.mark.parametrize("site", ["SITE-A", "=SUM(A1) <b>&/../x", "-x", "it's", "$(reboot)", "ä b"])
def test_a_shell_parses_the_command_line_back(site: str) -> None:
    line = " ".join(explain_command("my report", site, DAY, "CE", "-h1"))

    program, *arguments = shlex.split(line)
    args = make_parser().parse_args(arguments)
    assert program == "sam-report"
    assert (args.report, args.site, args.day) == ("my report", site, DAY)
    assert (args.flavour, args.host) == ("CE", "-h1")


# What cost availability, and what did not ---------------------------------------------------------


def hourly(first: int, last: int, status: str = "CRITICAL") -> str:
    return "; ".join(f"{hour:02}:00 {status}" for hour in range(first, last))


def in_downtime(stored: StoredDay) -> None:
    day = "00:00-06:00 OK; 06:00-18:00 DOWNTIME; 18:00-24:00 CRITICAL"
    fill(stored, day, "00:00-12:00 OK; 12:00-24:00 CRITICAL", hourly(12, 24))
    stored.downtimes = [downtime("06:00", "18:00", host_name="")]


def excluded_metric(stored: StoredDay) -> None:
    results = "05:00 CRITICAL; 07:00 CRITICAL; 08:00 CRITICAL; 09:00 OK"
    metric = "00:00-06:00 CRITICAL; 06:00-24:00 EXCLUDED"
    fill(stored, "00:00-06:00 CRITICAL; 06:00-24:00 OK", metric, results)
    stored.exclusions = [exclusion(7, METRIC, "06:00", "24:00", metric_name="submit")]


def excluded_host(stored: StoredDay) -> None:
    results = "03:00 CRITICAL bad; 06:00 CRITICAL; 09:00 CRITICAL bad"
    fill(stored, "00:00-06:00 OK; 06:00-24:00 CRITICAL", results=results)
    stored.exclusions = [exclusion(3, MONITORING_HOST, "00:00", "24:00", monitoring_host="bad")]


def beside_a_good_endpoint(stored: StoredDay) -> None:
    """From noon on neither is up: either of them would have been enough."""
    fill(stored, "00:00-12:00 OK; 12:00-24:00 CRITICAL", results="12:00 CRITICAL")
    stored.segment("endpoint", "CE h2", "00:00-24:00 MISSING")
    for metric in ("ping", "submit"):
        stored.segment("metric", f"CE h2 {metric}", "00:00-06:00 CRITICAL", "06:00-24:00 MISSING")
        stored.result(f"CE h2 {metric}", "00:00", "CRITICAL")


def pruned(stored: StoredDay) -> None:
    fill(stored, "00:00-24:00 CRITICAL")


@pytest.mark.parametrize(
    ("arrange", "costly", "without_effect", "texts"),
    [
        (in_downtime, 6, 6, {"CRITICAL says submit"}),
        (excluded_metric, 1, 2, {"CRITICAL says submit"}),
        (excluded_host, 1, 0, {"CRITICAL says submit"}),
        (beside_a_good_endpoint, 3, 2, {"CRITICAL says submit", NO_RESULT}),
        (pruned, 1, 0, {NOT_STORED}),
    ],
)
def test_failures_cost_availability_only_where_they_make_the_site_fail(
    stored: StoredDay,
    arrange: Callable[[StoredDay], None],
    costly: int,
    without_effect: int,
    texts: set[str],
) -> None:
    arrange(stored)

    failures = stored.day().failures
    grouped = causes_json(stored.day(), ALL)
    assert {failure.text for failure in failures if failure.costs} == texts
    for name, number in (("causes", costly), ("causes_without_effect", without_effect)):
        assert sum(cause["count"] for cause in grouped[name]) == number
        assert [f.costs for f in failures].count(name == "causes") == number


# Failures of one cause are one line, although the texts of probes vary ----------------------------


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
