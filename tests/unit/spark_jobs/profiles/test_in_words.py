"""What a profile counts, in words."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.in_words import in_words, words_by_day
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period

HEAD = 'name = "critical"\nvalidity_s = 7200\n'
FLAVOURS = """\
[flavours.CE]
metrics = ["submit", "ping", "copy"]
[flavours.ARC-CE]
metrics = ["ping"]
[flavours.SRM]
metrics = ["put"]
endpoints_operation = "AND"
[flavours.WEBDAV]
metrics = ["put"]
"""
FUNCTIONS = """\
[functions.compute]
flavours = ["CE", "ARC-CE"]
[functions.storage]
flavours = ["SRM", "WEBDAV"]
"""
RANKED = ["CRITICAL", "DOWNTIME", "MISSING", "UNKNOWN", "WARNING", "OK"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profile.toml"


def profile_of(file: Path, top: str = "", rest: str = FUNCTIONS) -> Profile:
    file.write_text(f"{HEAD}{top}{FLAVOURS}{rest}")
    return read_profile(file)


def words_of(file: Path, top: str = "", rest: str = FUNCTIONS) -> dict[str, str]:
    return dict(in_words(profile_of(file, top, rest)))


def test_the_functions_of_a_site_are_an_expression(file: Path) -> None:
    assert words_of(file)["Up when"] == "(CE or ARC-CE) and (SRM or WEBDAV)"
    assert words_of(file, rest="")["Up when"] == "CE and ARC-CE and SRM and WEBDAV"
    either = words_of(file, top='functions_operation = "OR"\n')
    assert either["Up when"] == "(CE or ARC-CE) or (SRM or WEBDAV)"
    one = words_of(file, rest='[functions.x]\nflavours = ["CE", "SRM"]\n')
    assert one["Up when"] == "CE or SRM"
    assert "does not count" in one["Metrics of WEBDAV"]
    assert "does not count" not in one["Metrics of CE"]


def test_metrics_of_a_flavour_say_how_many_endpoints_are_enough(file: Path) -> None:
    words = words_of(file)

    assert words["Metrics of CE"] == "submit, ping and copy, at one or more endpoints"
    assert words["Metrics of SRM"] == "put, at every endpoint"
    any_metric = words_of(file, top='metrics_operation = "OR"\n')["Metrics of CE"]
    assert any_metric.startswith("submit, ping or copy,")


def test_results_name_the_vo_and_the_fqan(file: Path) -> None:
    assert words_of(file)["Results"].startswith("of any VO;")
    assert words_of(file, top='vo = "ops"\n')["Results"].startswith("of VO ops;")
    assert words_of(file, top='vo = ""\nfqan = "/ops"\n')["Results"].startswith(
        "without a VO and FQAN /ops;"
    )


def test_validity_names_the_metrics_that_differ(file: Path) -> None:
    words = words_of(file, rest='[validity]\nput = 14400\nping = "off"\n')

    general, put, ping = words["Validity"].split("; ")
    assert general == "a result is valid for 2 h"
    assert put == "of put: for 4 h"
    assert ping.startswith("of ping: until")


def test_downtimes_that_count_are_named(file: Path) -> None:
    assert words_of(file)["Downtimes"].startswith("SCHEDULED/OUTAGE lower the availability")
    assert words_of(file, top="downtimes = []\n")["Downtimes"] == "none count"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ("30", "outside 0 to 30"),
        ("10:", "below 10"),
        ("~:20", "above 20"),
        ("5:10.5", "outside 5 to 10.5"),
        ("@5:10", "from 5 to 10"),
        ("@~:5", "at most 5"),
    ],
)
def test_thresholds_say_when_they_trigger(file: Path, limits: str, text: str) -> None:
    threshold = f'[[thresholds]]\nmetric = "put"\nlabel = "time"\nwarning = "{limits}"\n'

    words = words_of(file, rest=f'{threshold}host = "se1"\nflavour = "SRM"\n')

    assert words["Threshold on put"] == f"of SRM on se1: WARNING if time is {text}"


def test_targets_of_groups_and_sites_have_lines_of_their_own(file: Path) -> None:
    words = words_of(
        file,
        rest="[targets]\nreliability = 99.5\n"
        "[targets.groups.tier.2]\navailability = 95\n[targets.sites.A]\nunknown = 5\n",
    )

    assert words["Targets"].startswith("availability 80 %, reliability 99.5 %, at most 10 %")
    assert words["Targets of tier 2"] == "availability 95 %"
    assert words["Targets of A"] == "at most 5 % not known"


def test_an_own_operation_is_an_order_or_a_list_of_pairs(file: Path) -> None:
    rows = [[a, b, b] for at, a in enumerate(RANKED) for b in RANKED[at:]]
    top = 'functions_operation = "MINE"\n'

    ordered = words_of(file, top, f"{FUNCTIONS}[operations.MINE]\ntable = {rows}\n")
    rows = [[a, b, a if a == b else "CRITICAL"] for a, b, _ in rows]
    listed = words_of(file, top, f"{FUNCTIONS}[operations.MINE]\ntable = {rows}\n")

    assert ordered["Operation MINE"] == f"the later of {' < '.join(RANKED)}"
    assert "OK and WARNING: CRITICAL" in listed["Operation MINE"]
    assert ordered["Up when"] == "MINE of ((CE or ARC-CE), (SRM or WEBDAV))"


def test_a_profile_that_changed_within_the_days_says_what_was_different(file: Path) -> None:
    days = [date(2026, 10, day) for day in range(1, 6)]
    threshold = '[[thresholds]]\nmetric = "put"\nlabel = "time"\nwarning = "30"\n'
    new = profile_of(file, 'vo = "ops"\n', f"{FUNCTIONS}{threshold}")
    old = profile_of(file, 'vo = "atlas"\n')

    newest, earlier = words_by_day([(day, new if day > days[2] else old) for day in days])

    assert newest.days == Period(days[3], days[4])
    assert newest.words == in_words(new)
    assert earlier.days == Period(days[0], days[2])
    assert [heading for heading, _ in earlier.words] == ["Results", "Threshold on put"]
    assert "atlas" in earlier.words[0][1] and earlier.words[1][1] == "none"
