"""What a profile counts, in words."""

from __future__ import annotations

import re
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


THRESHOLD = '[[thresholds]]\nmetric = "put"\nlabel = "time"\nwarning = "{}"\n'
OF_SRM = 'host = "se1"\nflavour = "SRM"\n'
TARGETS = """\
[targets]
reliability = 99.5
[targets.sites.A]
unknown = 5
"""


@pytest.mark.parametrize(
    ("top", "rest", "heading", "words"),
    [
        ("", FUNCTIONS, "Up when", "(CE or ARC-CE) and (SRM or WEBDAV)"),
        ('functions_operation = "OR"', FUNCTIONS, "Up when", "(CE or ARC-CE) or (SRM or WEBDAV)"),
        ("", '[functions.x]\nflavours = ["CE", "SRM"]\n', "Up when", "CE or SRM"),
        ("", '[functions.x]\nflavours = ["CE"]\n', "Metrics of WEBDAV", "…does not count…"),
        ("", "", "Metrics of CE", "submit, ping and copy, at one or more endpoints"),
        ("", "", "Metrics of SRM", "put, at every endpoint"),
        ('vo = ""\nfqan = "/ops"', "", "Results", "without a VO and FQAN /ops;…"),
        ("", "[validity]\nput = 14400\n", "Validity", "a result is valid for 2 h; of put: for 4 h"),
        ("downtimes = []", "", "Downtimes", "none count"),
        ("", TARGETS, "Targets", "availability 80 %, reliability 99.5 %, at most 10 %…"),
        ("", TARGETS, "Targets of A", "at most 5 % not known"),
        *(
            (
                "",
                THRESHOLD.format(limits) + OF_SRM,
                "Threshold on put",
                f"of SRM on se1: WARNING if time is {text}",
            )
            for limits, text in (
                *(("30", "outside 0 to 30"), ("10:", "below 10"), ("~:20", "above 20")),
                *(("@5:10", "from 5 to 10"), ("@~:5", "at most 5")),
            )
        ),
    ],
)
def test_what_counts_is_said_in_words(
    file: Path, top: str, rest: str, heading: str, words: str
) -> None:
    said = words_of(file, f"{top}\n", rest)

    assert re.fullmatch(re.escape(words).replace("…", ".*"), said[heading])
    assert "does not count" not in said["Metrics of CE"]


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
    new = profile_of(file, 'vo = "ops"\n', FUNCTIONS + THRESHOLD.format(30))
    old = profile_of(file, 'vo = "atlas"\n')

    newest, earlier = words_by_day([(day, new if day > days[2] else old) for day in days])

    assert newest.days == Period(days[3], days[4])
    assert newest.words == in_words(new)
    assert earlier.days == Period(days[0], days[2])
    assert [heading for heading, _ in earlier.words] == ["Results", "Threshold on put"]
    assert "atlas" in earlier.words[0][1] and earlier.words[1][1] == "none"
