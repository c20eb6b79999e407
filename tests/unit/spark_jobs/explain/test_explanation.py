"""Each segment that is not OK names its reasons: children, results, downtimes, exclusions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.cli import make_parser
from sam_pipeline.spark_jobs.explain.as_json import causes_json, day_json
from sam_pipeline.spark_jobs.explain.as_text import cause_lines, day_lines
from sam_pipeline.spark_jobs.explain.causes import COSTLY, WITHOUT_EFFECT
from sam_pipeline.spark_jobs.explain.explanation import SiteDay
from sam_pipeline.spark_jobs.explain.phrases import explain_command
from sam_pipeline.spark_jobs.explain.selection import Selection
from sam_pipeline.spark_jobs.explain.ticket import ticket
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Range, Threshold
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT
from tests.support.reports.site_day import DAY, StoredDay, at

ALL = Selection("A")
DOWNTIME = Downtime("GOC-1", "A", "h1", "", 0, 0, "SCHEDULED", "OUTAGE", "new\nkernel")
EXCLUSION = Exclusion(7, "metric", "", "submit", "", "CE", "", 0, 0, "probe was\nbroken", "ada")


def day_text(day: SiteDay, selection: Selection) -> str:
    return "\n".join(day_lines(day, selection))


def lines(text: str) -> Sequence[str]:
    return [line.strip() for line in text.splitlines()]


@pytest.fixture
def stored(tmp_path: Path) -> StoredDay:
    return StoredDay(tmp_path)


def test_a_sites_segment_leads_down_to_the_metric(stored: StoredDay) -> None:
    stored.everywhere("00:00-06:00 OK", "06:00-07:00 CRITICAL", "07:00-24:00 OK")
    stored.segment(
        "metric", "CE h1 submit", "00:00-06:00 OK", "06:00-07:00 CRITICAL", "07:00-24:00 OK"
    )
    stored.result("CE h1 submit", "06:00", "CRITICAL")
    stored.result("CE h1 submit", "06:30", "CRITICAL")

    text = day_text(stored.day(), ALL)

    cause = "because function compute is CRITICAL: service CE: endpoint h1: metric submit"
    site = lines(text)
    assert site[site.index("06:00:00-07:00:00 CRITICAL") + 1] == cause
    assert "because service CE is CRITICAL: endpoint h1: metric submit" in site
    assert "2026-11-14T06:00:00Z CRITICAL CRITICAL says submit (m-06:00)" in site
    assert "availability = 100 x (OK 82800 + WARNING 0) / (86400 - not known 0) = 95.83333" in text
    assert text.count("= 95.83333") == 8  # both figures of site, function, service, endpoint


def test_only_the_children_that_decide_are_named_and_when(stored: StoredDay) -> None:
    stored.segment("site", "", "00:00-08:00 CRITICAL", "08:00-24:00 OK")
    stored.segment("function", "compute", "00:00-04:00 CRITICAL", "04:00-24:00 OK")
    stored.segment("function", "storage", "00:00-04:00 WARNING", "04:00-08:00 CRITICAL")
    stored.segment("function", "storage", "08:00-24:00 OK")

    [site, *_] = stored.day().things

    assert [(child.names[-1], child.start) for child in site.reasons[0].deciding] == [
        ("compute", at("00:00")),
        ("storage", at("04:00")),
    ]
    assert "because function storage is CRITICAL 04:00:00-08:00:00" in day_text(stored.day(), ALL)


def test_a_status_that_no_child_has_names_all_children_that_were_not_ok(stored: StoredDay) -> None:
    # A profile's own operation may fold one CRITICAL of two to WARNING.
    stored.segment("site", "", "00:00-24:00 WARNING")
    stored.segment("function", "compute", "00:00-24:00 CRITICAL")
    stored.segment("function", "storage", "00:00-24:00 OK")

    [site, *_] = stored.day().things

    assert [child.names[-1] for child in site.reasons[0].deciding] == ["compute"]


def test_missing_by_validity_shows_the_last_result_and_since_when(tmp_path: Path) -> None:
    stored = StoredDay(tmp_path, ('validity_s = "off"', "validity_s = 7200"))
    stored.everywhere("00:00-08:00 OK", "08:00-09:00 MISSING", "09:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-08:00 OK", "08:00-09:00 MISSING")
    stored.result("CE h1 submit", "05:00", "OK")
    stored.result("CE h1 submit", "06:00", "OK")
    stored.result("CE h1 submit", "09:00", "OK")

    [missing] = [line for line in lines(day_text(stored.day(), ALL)) if "no result for 3 h" in line]
    assert "2026-11-14T06:00:00Z OK OK says submit (m-06:00), was valid for 2 h" in missing
    assert missing.endswith("MISSING since 2026-11-14T08:00:00Z")


def test_of_two_last_results_of_one_second_the_worse_is_shown(tmp_path: Path) -> None:
    stored = StoredDay(tmp_path, ('validity_s = "off"', "validity_s = 7200"))
    stored.everywhere("00:00-08:00 OK", "08:00-24:00 MISSING")
    stored.segment("metric", "CE h1 submit", "06:00-08:00 CRITICAL", "08:00-24:00 MISSING")
    stored.result("CE h1 submit", "05:00", "UNKNOWN")
    for host, status in (("nagios1", "OK"), ("nagios2", "CRITICAL"), ("nagios3", "WARNING")):
        stored.result("CE h1 submit", "06:00", status, monitoring_host=host)

    text = day_text(stored.day(), ALL)

    assert "the last one, 2026-11-14T06:00:00Z CRITICAL" in text


def test_missing_all_day_shows_how_far_back_the_report_looked(stored: StoredDay) -> None:
    stored.everywhere("00:00-24:00 MISSING")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 MISSING")

    assert "no result since 2026-11-13T00:00:00Z (" in day_text(stored.day(), ALL)


def test_a_status_of_the_day_before_shows_its_result(stored: StoredDay) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "~21:00", "CRITICAL")
    stored.result("CE h1 submit", "~22:00", "CRITICAL")

    text = day_text(stored.day(), ALL)

    assert "2026-11-13T22:00:00Z CRITICAL CRITICAL says submit (m-~22:00)" in lines(text)
    assert "21:00:00Z" not in text


def test_a_threshold_shows_the_status_it_changed_and_its_rule(stored: StoredDay) -> None:
    limits = Range(Fraction(0), Fraction(30)), Range(None, Fraction("60.5"))
    rules = (Threshold("submit", "time", *limits),)
    stored.profile = replace(stored.profile, thresholds=rules)
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "00:00", "OK", performance_data="time=72s")

    assert (
        "2026-11-14T00:00:00Z CRITICAL (sent as OK; time=72s triggers the threshold critical ~:60.5"
        " of submit) OK says submit (m-00:00)"
    ) in lines(day_text(stored.day(), ALL))
    [endpoint] = (
        thing for thing in day_json(stored.day(), ALL)["things"] if thing["level"] == ENDPOINT
    )
    [result] = endpoint["reasons"][0]["metrics"][0]["results"]
    assert (result["status"], result["original_status"]) == ("CRITICAL", "OK")
    assert result["threshold"]["critical"] == "~:60.5"


def test_an_excluded_metric_names_its_exclusion(stored: StoredDay) -> None:
    stored.everywhere("00:00-24:00 OK")
    stored.segments = [segment for segment in stored.segments if segment.level != "endpoint"]
    stored.segment("endpoint", "CE h1", "00:00-02:00 EXCLUDED", "02:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-02:00 EXCLUDED", "02:00-24:00 OK")
    stored.exclusions = [
        replace(EXCLUSION, start=at("00:00"), end=at("02:00")),
        replace(EXCLUSION, exclusion_id=8, host_name="h9", start=at("00:00"), end=at("02:00")),
    ]

    text = day_text(stored.day(), ALL)

    exclusion = (
        "exclusion 7 of metric submit at CE, 2026-11-14T00:00:00Z to 2026-11-14T02:00:00Z,"
        " by ada: probe was broken"
    )
    assert lines(text).count(exclusion) == 2  # at the metric, and in the list
    assert "exclusion 8" not in text


def test_an_excluded_site_names_its_exclusion_and_no_function(stored: StoredDay) -> None:
    stored.segment("site", "", "00:00-02:00 UNKNOWN", "02:00-24:00 OK")
    stored.segment("function", "compute", "00:00-02:00 CRITICAL", "02:00-24:00 OK")
    stored.exclusions = [
        Exclusion(9, "group", "", "", "A", "", "", at("00:00"), at("02:00"), "flood", "ada")
    ]

    [site, *_] = stored.day().things

    assert site.reasons[0].deciding == []
    assert [exclusion.exclusion_id for exclusion in site.reasons[0].exclusions] == [9]
    assert "exclusion 9 of site A," in day_text(stored.day(), ALL)


def test_results_of_an_excluded_monitoring_host_are_listed_as_ignored(stored: StoredDay) -> None:
    stored.everywhere("00:00-12:00 MISSING", "12:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-12:00 MISSING", "12:00-24:00 OK")
    stored.result("CE h1 submit", "06:00", "CRITICAL")
    stored.result("CE h1 submit", "08:00", "CRITICAL")
    stored.result("CE h1 submit", "08:01", "OK", monitoring_host="other")
    stored.exclusions = [
        Exclusion(
            3, "monitoring-host", "nagios", "", "", "", "", at("06:00"), at("08:00"), "x", "y"
        )
    ]

    day = stored.day()

    assert [ignored.result.message_id for ignored in day.ignored] == ["m-06:00", "m-08:00"]
    assert (
        "ignored: CE h1 submit 2026-11-14T06:00:00Z CRITICAL CRITICAL says submit (m-06:00),"
        " measured by nagios (exclusion 3)"
    ) in lines(day_text(stored.day(), ALL))


def test_an_excluded_monitoring_host_applies_only_to_sites_that_it_measured(
    stored: StoredDay,
) -> None:
    stored.everywhere("00:00-06:00 OK", "06:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-06:00 OK", "06:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "06:00", "CRITICAL")
    stored.result("CE h1 submit", "07:00", "CRITICAL", monitoring_host="broken")
    times = (at("00:00"), at("24:00"))
    stored.exclusions = [
        Exclusion(number, "monitoring-host", host, "", "", "", "", *times, "why", "ada")
        for number, host in ((3, "broken"), (4, "elsewhere"))
    ]

    day = stored.day()

    assert [exclusion.exclusion_id for exclusion in day.exclusions] == [3]
    assert "elsewhere" not in "\n".join([day_text(day, ALL), *ticket(day, ALL, Targets())])


def test_the_cause_of_a_time_without_results_shows_its_start_and_end(stored: StoredDay) -> None:
    stored.everywhere("00:00-12:00 MISSING", "12:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-12:00 MISSING", "12:00-24:00 OK")
    stored.segment("endpoint", "SRM h2", "12:00-24:00 MISSING")
    stored.segment("metric", "SRM h2 put", "12:00-24:00 MISSING")

    grouped = "\n".join(cause_lines(stored.day(), ALL))

    assert "1 x MISSING CE submit 00:00:00-12:00:00 at h1: no result" in grouped
    assert "1 x MISSING SRM put 12:00:00-24:00:00 at h2: no result" in grouped
    written = "\n".join(ticket(stored.day(), ALL, Targets()))
    assert "1 x MISSING CE submit, 00:00:00 to 12:00:00 at h1" in written


def test_downtimes_that_count_make_segments_and_others_are_marked(stored: StoredDay) -> None:
    stored.everywhere("00:00-02:00 DOWNTIME", "02:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-01:00 CRITICAL", "01:00-24:00 OK")
    stored.result("CE h1 submit", "00:00", "CRITICAL")
    stored.downtimes = [
        replace(DOWNTIME, start=at("00:00"), end=at("02:00")),
        replace(
            DOWNTIME, downtime_id="GOC-2", severity="WARNING", start=at("05:00"), end=at("9:00")
        ),
        replace(DOWNTIME, downtime_id="GOC-3", host_name="h9", start=at("00:00"), end=at("02:00")),
        replace(DOWNTIME, downtime_id="GOC-4", start=at("~00:00"), end=at("00:00")),
    ]

    text = day_text(stored.day(), ALL)

    [endpoint] = stored.day().of_level(ENDPOINT)
    assert [downtime.downtime_id for downtime in endpoint.reasons[0].downtimes] == ["GOC-1"]
    assert endpoint.reasons[0].deciding == []
    assert "because function compute is DOWNTIME: service CE: endpoint h1: in downtime" in text
    assert "also submit CRITICAL 00:00:00-01:00:00" in lines(text)
    assert "2026-11-14T02:00:00Z: new kernel (counts)" in text
    assert "(does not count)" in text
    assert "GOC-3" not in text
    assert "GOC-4" not in text
    [failure] = stored.day().failures
    assert (failure.message_id, failure.costs) == ("m-00:00", False)


def test_a_failure_behind_several_segments_is_listed_once(stored: StoredDay) -> None:
    stored.everywhere(
        "00:00-06:00 CRITICAL", "06:00-07:00 DOWNTIME", "07:00-12:00 CRITICAL", "12:00-24:00 OK"
    )
    stored.segment("metric", "CE h1 submit", "00:00-12:00 CRITICAL", "12:00-24:00 OK")
    for time in ("~23:00", "05:00", "06:10", "06:30", "08:00"):
        stored.result("CE h1 submit", time, "CRITICAL")
    stored.downtimes = [replace(DOWNTIME, start=at("06:00"), end=at("07:00"))]

    # 06:10 was in the downtime; 06:30, too, but it still held after it.
    assert [(failure.message_id, failure.costs) for failure in stored.day().failures] == [
        ("m-~23:00", True),
        ("m-05:00", True),
        ("m-06:10", False),
        ("m-06:30", True),
        ("m-08:00", True),
    ]


@pytest.fixture
def three_causes(stored: StoredDay) -> StoredDay:
    """Sixty failures of three causes."""
    stored.everywhere("00:00-20:00 CRITICAL", "20:00-24:00 OK")
    stored.segment("metric", "CE h1 submit", "00:00-20:00 CRITICAL", "20:00-24:00 OK")
    for number in range(60):
        text = (f"timed out after {number} s", f"no route to ce{number}.a.org", "{<b>\n{x}")[
            number % 3
        ]
        time = f"{number // 3}:{number % 3 * 20:02}"
        stored.result("CE h1 submit", time, "CRITICAL", summary=text)
    return stored


def test_a_line_for_each_cause(three_causes: StoredDay) -> None:
    text = "\n".join(cause_lines(three_causes.day(), ALL))

    about, heading, *costly, without_effect = lines(text)
    assert about == "test, 2026-11-14: A"
    assert heading == f"{COSTLY}: 60 failures, 3 causes"
    assert without_effect == f"{WITHOUT_EFFECT}: 0 failures, 0 causes"
    assert [line.partition("; e.g. ")[0] for line in costly] == [
        "20 x CRITICAL CE submit 00:20:00-19:20:00 at h1: no route to *",
        "20 x CRITICAL CE submit 00:00:00-19:00:00 at h1: timed out after * s",
        "20 x CRITICAL CE submit 00:40:00-19:40:00 at h1: {<b> {x}",
    ]
    assert costly[0].endswith("; e.g. h1 2026-11-14T19:20:00Z (m-19:20)")
    document = causes_json(three_causes.day(), ALL)
    assert [cause["count"] for cause in document["causes"]] == [20, 20, 20]
    assert document["causes"][2]["example"]["summary"] == "{<b>\n{x}"


def test_a_ticket_shows_site_day_figure_causes_and_the_command(three_causes: StoredDay) -> None:
    written = ticket(three_causes.day(), ALL, Targets())

    assert written[0] == "A on 2026-11-14 (UTC), report test"
    assert written[1] == "availability 16.66667, reliability 16.66667, 20 h CRITICAL"
    assert written[2].startswith(
        "targets missed: availability 16.67 is below 80; reliability 16.67"
    )
    assert "  00:00:00-20:00:00 CRITICAL: function compute: service CE: endpoint h1:" in written[5]
    assert sum("20 x CRITICAL" in line for line in written) == 3
    assert written[-1] == "  sam-report explain --report test --day 2026-11-14 --site A"


def test_a_ticket_says_that_a_site_outside_all_functions_has_no_figure(stored: StoredDay) -> None:
    stored.segment("metric", "OTHER h3 probe", "00:00-24:00 CRITICAL")
    stored.segment("endpoint", "OTHER h3", "00:00-24:00 CRITICAL")
    stored.segment("service", "OTHER", "00:00-24:00 CRITICAL")
    [compute, *others] = stored.profile.flavours
    other = replace(compute, name="OTHER", metrics=("probe",))
    stored.profile = replace(stored.profile, flavours=(compute, *others, other))

    lines_of_ticket = ticket(stored.day(), ALL, Targets())

    assert lines_of_ticket[0] == "A on 2026-11-14 (UTC), report test"
    assert lines_of_ticket[1].startswith("no figure")
    assert not any("availability" in line for line in lines_of_ticket[2:])
    assert f"{WITHOUT_EFFECT}: 1 failure, 1 cause:" in lines_of_ticket
    assert "  1 x CRITICAL OTHER probe, 00:00:00 to 24:00:00 at h3" in lines_of_ticket


def test_a_ticket_wraps_lines_so_that_metric_and_reason_are_whole(tmp_path: Path) -> None:
    host, metric = f"se01.{'long-name.' * 4}example.org", "org.sam.SRM-Put-With-A-Long-Name"
    stored = StoredDay(tmp_path, ('"submit"', f'"{metric}"'))
    stretches = "00:00-06:00 DOWNTIME", "06:00-24:00 CRITICAL"
    for level, names in (
        ("endpoint", f"CE {host}"),
        ("service", "CE"),
        ("function", "compute"),
        ("site", ""),
    ):
        stored.segment(level, names, *stretches)
    stored.segment("metric", f"CE {host} {metric}", "00:00-24:00 CRITICAL")
    stored.result(f"CE {host} {metric}", "00:00", "CRITICAL")
    reason = "the cooling of the machine room is replaced, so all services are switched off"
    stored.downtimes = [
        replace(DOWNTIME, host_name=host, start=at("00:00"), end=at("06:00"), description=reason)
    ]

    written = ticket(stored.day(), ALL, Targets())

    assert max(map(len, written)) <= 100
    unwrapped = " ".join(" ".join(written).split())
    assert f"CRITICAL: function compute: service CE: endpoint {host}: metric {metric}" in unwrapped
    assert reason in unwrapped
    assert "…" not in unwrapped


def test_a_ticket_is_short_for_any_day(stored: StoredDay) -> None:
    clock = [f"{minutes // 60:02}:{minutes % 60:02}" for minutes in range(0, 24 * 60 + 1, 30)]
    statuses = ["CRITICAL", "WARNING"] * 24
    stretches = [
        f"{start}-{end} {status}"
        for start, end, status in zip(clock[:-1], clock[1:], statuses, strict=True)
    ]
    stored.everywhere(*stretches)
    stored.segment("metric", "CE h1 submit", *stretches)
    for number, (time, status) in enumerate(zip(clock[:-1], statuses, strict=True)):
        letter = chr(ord("a") + number % 26)
        stored.result("CE h1 submit", time, status, summary=f"{letter} is {'long ' * 2000}")
    stored.downtimes = [
        replace(DOWNTIME, downtime_id=f"GOC-{n}" * 30, start=at("00:00"), end=at("24:00"))
        for n in range(20)
    ]

    for selection in (ALL, Selection("A", "CE", "h1")):
        written = ticket(stored.day(), selection, Targets())

        assert max(map(len, written)) <= 100
        assert 30 < len(written) <= 40
        assert any(line.strip().startswith("… and ") for line in written)
        assert "sam-report explain" in written[-1]


def test_an_explanation_can_be_limited_to_a_flavour_or_host(stored: StoredDay) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.segment("endpoint", "SRM h2", "00:00-24:00 CRITICAL")
    stored.segment("service", "SRM", "00:00-24:00 CRITICAL")
    stored.segment("function", "storage", "00:00-24:00 CRITICAL")

    text = day_text(stored.day(), Selection("A", "SRM"))

    assert "SRM h2 (AND of its metrics)" in lines(text)
    assert "CE h1 (AND of its metrics)" not in lines(text)
    assert "because function compute is CRITICAL" in text  # the whole site is always explained


@pytest.mark.parametrize("site", ["SITE-A", "=SUM(A1) <b>&/../x", "-x", "it's", "$(reboot)", "ä b"])
def test_a_shell_parses_the_command_line_back(site: str) -> None:
    line = " ".join(explain_command("my report", site, DAY, "CE", "-h1"))

    program, *arguments = shlex.split(line)
    args = make_parser().parse_args(arguments)
    assert program == "sam-report"
    assert (args.report, args.site, args.day) == ("my report", site, DAY)
    assert (args.flavour, args.host) == ("CE", "-h1")


def test_a_result_names_who_sent_it(stored: StoredDay) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "00:00", "CRITICAL", publisher="key:nagios-a")

    document = day_json(stored.day(), ALL)

    assert "(m-00:00 from key:nagios-a)" in day_text(stored.day(), ALL)
    assert any("m-00:00 from key:nagios-a" in line for line in ticket(stored.day(), ALL, Targets()))
    [endpoint] = (thing for thing in document["things"] if thing["level"] == ENDPOINT)
    [result] = endpoint["reasons"][0]["metrics"][0]["results"]
    assert result["publisher"] == "key:nagios-a"
    [cause] = causes_json(stored.day(), ALL)["causes"]
    assert cause["example"]["publisher"] == "key:nagios-a"


def test_nothing_names_an_anonymous_sender(stored: StoredDay) -> None:
    stored.everywhere("00:00-24:00 CRITICAL")
    stored.segment("metric", "CE h1 submit", "00:00-24:00 CRITICAL")
    stored.result("CE h1 submit", "00:00", "CRITICAL", publisher="anonymous")

    assert "CRITICAL says submit (m-00:00)" in day_text(stored.day(), ALL)
    assert "anonymous" not in "\n".join(
        [*day_lines(stored.day(), ALL), *ticket(stored.day(), ALL, Targets())]
    )
