"""Profiles: read, recorded, or refused with every problem at its line, whatever their layout."""

from __future__ import annotations

import itertools
import re
import tempfile
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.errors import NoProfile, ProfileError
from sam_pipeline.spark_jobs.profiles.file import read_profile, read_profiles, recorded_profile
from sam_pipeline.spark_jobs.profiles.in_words import in_words, words_by_day
from sam_pipeline.spark_jobs.profiles.profile import Function, Profile, Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import read_range, triggers, verdict_of
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, OR
from tests.oracle import oracle
from tests.worlds import model

SHORT = """\
name = "critical"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
"""
ROWS = ",\n".join(
    f'["{a}", "{b}", "{FOLDED[OR.table[i][j]]}"]'
    for (i, a), (j, b) in itertools.combinations_with_replacement(enumerate(FOLDED), 2)
)
TOP = """\
name = "critical"
validity_s = 3600
metrics_operation = "MINE"
functions_operation = "AND"
vo = "ops"
fqan = "/ops/Role=lcgadmin"
downtimes = ["SCHEDULED/OUTAGE"]
"""
TABLES = [
    """\
[flavours.CE]
metrics = [ # a = 1
  "ping",
  # "[validity]
  "org.sam.Submit",
]
endpoints_operation = "OR"
""",
    '[flavours."SRM.v2"]\nmetrics = ["ping", "put"]\n',
    '[functions.compute]\nflavours = ["CE"]\nflavours_operation = "OR"\n',
    '[functions.storage]\nflavours = ["SRM.v2"]\n',
    "[targets]\navailability = 80\nreliability = 85.5\nunknown = 10\ncoverage = 90\n",
    '[validity]\nping = 7200\n"org.sam.Submit" = "off"\n',
    f"[operations.MINE]\ntable = [\n{ROWS}\n]\n",
]
PING = '[[thresholds]]\nmetric = "ping"\nlabel = "time"\n'
RULES = [
    f'{PING}warning = "30"\ncritical = "60"\n',
    f'{PING}host = "CE01.example.org"\nflavour = "CE"\ncritical = "@5:10"\n',
    (
        '[[thresholds]]\nmetric = "put"\n'
        "label = '''[[thresholds]] metric = 1'''\n"
        'warning = "30"\n'
    ),
]
GOOD = TOP + "".join(TABLES + RULES)


def of(text: str | bytes) -> Profile:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "profile.toml")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        try:
            return read_profile(path)
        except ProfileError as error:
            assert error.exit_code == 78
            assert all(problem.startswith(f"{path}") for problem in error.problems)
            assert all("\n" not in problem for problem in error.problems)
            raise ProfileError([problem[len(f"{path}:") :] for problem in error.problems]) from None


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        of(text)
    return list(caught.value.problems)


def test_weights_of_groups_are_as_announced_or_those_of_argo() -> None:
    plain, argo = of(SHORT), of(f'weights = "argo"\n{SHORT}')

    assert [plain.weight_of(weight) for weight in (None, 0, 3)] == [1, 0, 3]
    assert [argo.weight_of(weight) for weight in (None, 0, 3)] == [1, 1, 4]
    assert ("Groups" in dict(in_words(plain)), "Groups" in dict(in_words(argo))) == (False, True)
    with pytest.raises(ProfileError, match='weights: expected "argo"'):
        of(f'weights = "egi"\n{SHORT}')


@pytest.mark.parametrize(
    ("notice", "seconds"), [("24h", 86_400), ("90m", 5_400), ("2d", 172_800), (None, 0)]
)
def test_the_notice_is_a_time_with_its_unit(notice: str | None, seconds: int) -> None:
    key = f'notice = "{notice}"\n' if notice else ""
    assert of(f"{key}{SHORT}").notice_s == seconds


def test_a_short_profile_gets_the_documented_defaults() -> None:
    profile = of(SHORT)

    assert (profile.metrics_operation, profile.functions_operation) == ("AND", "AND")
    assert profile.flavours[0].endpoints_operation == "OR"
    assert profile.functions == (Function("CE", ("CE",), "OR"),)
    assert profile.counts("scheduled", "OUTAGE") and not profile.counts("UNSCHEDULED", "OUTAGE")
    assert profile.targets.reliability == 85
    assert (profile.vo, of(f'vo = ""\n{SHORT}').vo) == (None, "")


TARGETS = f"""{SHORT}
[targets]
availability = 80
[targets.groups.tier.1]
availability = 97
unknown = 5
[targets.groups.federation."North-West"]
availability = 90
unknown = 8
[targets.sites."SITE-A"]
availability = 70
"""


def test_the_most_specific_target_counts() -> None:
    profile = of(TARGETS)
    groups = [("federation", "North-West"), ("tier", "1"), ("tier", "9")]

    site, member = (profile.targets_of_site(site, groups) for site in ("SITE-A", "SITE-B"))
    other = profile.targets_of_site("SITE-B", [])

    assert (site.availability, member.availability, other.availability) == (70, 97, 80)
    # Of the targets of several groups the strictest one.
    assert (site.unknown, member.unknown, other.unknown) == (5, 5, 10)
    assert site.reliability == member.reliability == 85
    assert profile.targets_of_group(("federation", "North-West")).availability == 90


def test_a_run_can_read_back_the_profile_it_recorded() -> None:
    for text in (SHORT, TARGETS, GOOD):
        assert recorded_profile(of(text).document) == of(text)
    assert of(GOOD).targets.reliability == Fraction("85.5")
    assert of(f"# a comment\n{SHORT}").digest == of(SHORT).digest
    assert of(SHORT.replace("ping", "pong")).digest != of(SHORT).digest


PROBLEMS = [
    """\
name = "critical"
validity_s = "of"  #! expected whole seconds
vos = "ops"  #! unknown key, did you mean vo?
sites = ["T1_*", 5, "T1_*"]  #! [2]: expected a string #! [3]: 'T1_*' is listed twice
groups = ["tier/1", "tier", "/1"]  #! [2]: expected "TYPE/NAME" #! [3]: expected "TYPE/NAME"
[flavours.CE]
metrics = ["ping", "put", "ping"]  #! [3]: 'ping' is listed twice
endpoint_operation = "OR"  #! unknown key, did you mean endpoints_operation?
[flavours.SRM]  #! metrics: expected a list of metric names
[functions.compute]
flavours = ["CE", "ARC", "CE"]  #! [2]: flavour ARC has no metrics #! [3]: 'CE' is listed twice
flavours_operation = "MOST"  #! expected one of AND, OR
[targets]
availability = 101  #! expected a percentage
reliability = nan  #! expected a percentage
coverage = true  #! expected a percentage
site = 5  #! unknown key, did you mean sites?
[targets.groups]
tier = 2  #! expected a table [targets.groups.tier]
[targets.groups.region.North]
availabilty = 90  #! unknown key, did you mean availability?
unknown = 200  #! expected a percentage
[targets.sites."SITE-A"]
coverage = 90  #! unknown key
[validity]
pong = 5  #! unknown key, did you mean ping?
[[exclusions]]  #! unknown key
metric = "ping"
""",
    """\
[flavours.CE]  #! name: is required #! validity_s: is required
metrics = ["ping", "submit"]
[flavours.SRM]
metrics = ["put"]
[[thresholds]]
metric = "pong"  #! no metric pong in this profile, did you mean ping?
label = "time"
warning = "30"
[[thresholds]]  #! label: is required
metric = "put"  #! flavour CE has no metric put
warning = "30s"  #! '30s' is not a range
flavour = "CE"
[[thresholds]]  #! expected warning or critical
metric = "ping"
label = "'my disk'"  #! expected the label without
[[thresholds]]
metric = "ping"
label = "time"
critical = 60  #! expected a range in quotes
flavour = "SMR"  #! no flavour SMR in this profile, did you mean SRM?
hosts = "ce01"  #! unknown key, did you mean host?
[[thresholds]]
metric = "ping"
label = "load"
critical = "20:10"  #! '20:10' starts above
host = "ce01.example.org"
[[thresholds]]  #! same metric, label, host and flavour as the rule in line 22
critical = "20"
host = "CE01.example.org."
label = "load"
metric = "ping"
""",
    GOOD.replace('["OK", "OK", "OK"],', '["OK", "FINE", "OK"],  #! is not a triple'),
]


@pytest.mark.parametrize("text", PROBLEMS)
def test_every_problem_is_reported_with_its_line_on_windows_too(text: str) -> None:
    expected = [
        (number, words.strip())
        for number, line in enumerate(text.splitlines(), 1)
        for words in line.split("#!")[1:]
    ]

    for ends in ("\n", "\r\n"):
        reported = problems(re.sub(r" *#!.*", "", text).replace("\n", ends))
        lines = [problem.partition(":")[0] for problem in reported]
        at_top = sum("is required" in words for number, words in expected if number == 1)
        assert sorted(lines[at_top:], key=int) == lines[at_top:]
        for number, words in expected:
            found = [
                p for p in reported if words in p and (number == 1 or p.startswith(f"{number}:"))
            ]
            assert len(found) == 1, (number, words, reported)
        assert len(reported) == len(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SHORT}oops\n".encode(), "5: Expected '='"),
        ("name = 1\n# caf\xe9\n".encode("latin-1"), "2: byte 0xe9 is not UTF-8: save the file"),
        (b'name = "a"\nvo = "b"\nname = "c"\nfqan = "d"\n', "3: Cannot overwrite a value"),
        (b"[flavours]\n[targets]\n[flavours]\n", "3: Cannot declare ('flavours',) twice"),
        (b"name = \"a\"\ntext = '''\nnever closed\n", "3: "),
        (b"a = " + b"[" * 100_000, " its values are nested too deeply"),
        (b"a = " + b"9" * 5000, " Exceeds the limit"),
        *(
            (GOOD.replace('"critical"', name, 1).encode(), "1: name: expected the report's name")
            for name in ('"a\\u0000"', '" a"', '"\\u200b"')
        ),
    ],
    ids=range(10),
)
def test_invalid_toml_and_invisible_names_are_one_problem(text: bytes, problem: str) -> None:
    [reported] = problems(text)

    assert reported.startswith(problem)


def test_many_and_long_mistakes_are_reported_in_seconds_and_short_lines() -> None:
    long = GOOD.replace("3600", "9" * 4000).replace('"ops"', f'"{"x" * 4000}\\n"')
    metrics = "\n".join(f'"metric {number}",' for number in range(2_000))
    validity = "\n".join(f'"metrics {number}" = 0' for number in range(6_000))
    rules = "\n".join(f'[[thresholds]]\nmetric = "m{number}"' for number in range(6_000))
    head = f'name = "x"\nvalidity_s = 1\n[flavours.CE]\nmetrics = [\n{metrics}\n]\n'

    assert all(len(problem) < 200 for problem in problems(long))
    assert len(problems(f"{head}[validity]\n{validity}\n{rules}")) == 6_000 * 5


def test_missing_files_and_two_profiles_of_one_report_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for path in paths:
        path.write_text(SHORT)

    with pytest.raises(ProfileError, match=r"another profile .* critical"):
        read_profiles(paths)
    for none in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(NoProfile) as caught:
            read_profile(none)
        assert caught.value.exit_code == 66


# Own operations ----------------------------------------------------------------------------------

PAIRS = {(a, b): FOLDED[max(FOLDED.index(a), FOLDED.index(b))] for a in FOLDED for b in FOLDED}
# DOWNTIME beats CRITICAL beats MISSING beats DOWNTIME: no order of children is like another.
BEATS = {("DOWNTIME", "CRITICAL"), ("CRITICAL", "MISSING"), ("MISSING", "DOWNTIME")}
CIRCLE = {pair: loser for a, b in BEATS for pair, loser in (((a, b), a), ((b, a), a))}


def test_a_profile_may_have_operations_of_its_own_and_validity_by_metric() -> None:
    profile = of(GOOD)

    own = profile.operations[profile.operation_number("MINE")]
    assert own.answers == OR.answers
    validity = [profile.validity(name) for name in ("ping", "put", "org.sam.Submit")]
    assert validity == [7200, 3600, None]


@pytest.mark.parametrize(
    ("validity", "days"),
    [('"off"', 1), ("1", 1), (f"{DAY_S}", 1), (f"{DAY_S + 1}", 2), (f"{8 * DAY_S}", 8)],
)
def test_a_report_looks_back_as_far_as_the_longest_validity_at_least_to_the_day_before(
    validity: str, days: int
) -> None:
    by_default = of(f'name = "x"\nvalidity_s = {validity}\n[flavours.CE]\nmetrics = ["a", "b"]\n')
    of_one = of(
        f'name = "x"\nvalidity_s = "off"\n[validity]\nb = {validity}\n'
        '[flavours.CE]\nmetrics = ["a", "b"]\n'
    )

    assert by_default.look_back == by_default.look_back_of("a") == days
    assert [of_one.look_back_of(name) for name in "ab"] == [1, days]
    assert of_one.look_back == days


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({**PAIRS, ("OK", "OK"): "WARNING"}, "not idempotent: OK with OK is WARNING"),
        ({**PAIRS, ("OK", "WARNING"): "OK"}, "not commutative: OK with WARNING is OK"),
        ({**PAIRS, ("OK", "WARNING"): "FINE"}, "is not a triple"),
        ({**PAIRS, **CIRCLE}, "not associative at (MISSING, DOWNTIME, CRITICAL)"),
        (
            {("OK", "WARNING"): "OK"},
            "not complete: no result for OK with OK; no result for OK with UNKNOWN",
        ),
    ],
)
def test_a_bad_table_is_refused_with_the_reason(
    pairs: dict[tuple[str, str], str], message: str
) -> None:
    table = [[a, b, result] for (a, b), result in pairs.items()]

    [problem] = problems(f"{SHORT}\n[operations.MINE]\ntable = {table}\n")

    assert "operations.MINE.table" in problem and message in problem


# What a profile counts, in words ------------------------------------------------------------------


FLAVOURS = """\
name = "critical"
validity_s = 7200
{}
[flavours.CE]
metrics = ["submit", "ping", "copy"]
[flavours.ARC-CE]
metrics = ["ping"]
[flavours.SRM]
metrics = ["put"]
endpoints_operation = "AND"
[functions.compute]
flavours = ["CE", "ARC-CE"]
[functions.storage]
flavours = ["SRM"]
"""
THRESHOLD = '[[thresholds]]\nmetric = "put"\nlabel = "time"\nhost = "se1"\nwarning = "{}"\n'


def profile_of(directory: Path, top: str = "", rest: str = "") -> Profile:
    (directory / "profile.toml").write_text(FLAVOURS.format(top) + rest)
    return read_profile(directory / "profile.toml")


@pytest.mark.parametrize(
    ("top", "rest", "heading", "words"),
    [
        ("", "", "Up when", "(CE or ARC-CE) and SRM"),
        ('functions_operation = "OR"', "", "Up when", "(CE or ARC-CE) or SRM"),
        ("", "", "Metrics of CE", "submit, ping and copy, at one or more endpoints"),
        ("", "", "Metrics of SRM", "put, at every endpoint"),
        ('vo = ""\nfqan = "/ops"', "", "Results", "without a VO and FQAN /ops;"),
        ("", "[validity]\nput = 14400\n", "Validity", "a result is valid for 2 h; of put: for 4 h"),
        ("downtimes = []", "", "Downtimes", "none count"),
        ('sites = ["T1_*", "T0"]', "", "Sites", "only those named T1_* or T0"),
        (
            'sites = ["T0"]\ngroups = ["tier/1", "*/DE"]',
            *("", "Sites", "only those named T0 and members of tier/1 or */DE"),
        ),
        ("", "[targets]\nreliability = 99.5\n", "Targets", "availability 80 %, reliability 99.5 %"),
        ("", "[targets.sites.A]\nunknown = 5\n", "Targets of A", "at most 5 % not known"),
        *(
            ("", THRESHOLD.format(limits), "Threshold on put", f"on se1: WARNING if time is {text}")
            for limits, text in (
                *(("30", "outside 0 to 30"), ("10:", "below 10"), ("~:20", "above 20")),
                *(("@5:10", "from 5 to 10"), ("@~:5", "at most 5")),
            )
        ),
    ],
)
def test_what_counts_is_said_in_words(
    tmp_path: Path, top: str, rest: str, heading: str, words: str
) -> None:
    assert dict(in_words(profile_of(tmp_path, top, rest)))[heading].startswith(words)


def test_a_profile_that_changed_within_the_days_says_what_was_different(tmp_path: Path) -> None:
    days = [date(2026, 10, day) for day in range(1, 6)]
    new = profile_of(tmp_path, 'vo = "ops"\n', THRESHOLD.format(30))
    old = profile_of(tmp_path, 'vo = "atlas"\n')

    newest, earlier = words_by_day([(day, new if day > days[2] else old) for day in days])

    assert (newest.days, newest.words) == (Period(days[3], days[4]), in_words(new))
    assert earlier.days == Period(days[0], days[2])
    assert [heading for heading, _ in earlier.words] == ["Results", "Threshold on put"]
    assert "atlas" in earlier.words[0][1] and earlier.words[1][1] == "none"


# Rules on performance data (availability rule 6) --------------------------------------------------


METRIC, HOST, FLAVOUR = "org.sam.SRM-Put", "se01.example.org", "SRM"


def rule(
    warning: str | None = None,
    critical: str | None = None,
    label: str = "time",
    host: str = "",
    flavour: str = "",
    metric: str = METRIC,
) -> Threshold:
    levels = [read_range(text) if text else None for text in (warning, critical)]
    return Threshold(metric, label, *levels, host_name=host, service_flavour=flavour)


def judge(rules: list[Threshold], performance_data: str | None, status: str = "OK") -> str:
    return verdict_of(rules, HOST, FLAVOUR, METRIC, status, performance_data).status


# The guidelines' own tables: what a range is, and what it makes of values around its bounds.
@pytest.mark.parametrize(
    ("text", "limits", "alerts", "quiet"),
    [
        ("10:20", (10, 20, False), "9.999 20.001", "10 15 20"),
        ("@10:20", (10, 20, True), "10 15 20", "9.999 20.001"),
        ("20", (0, 20, False), "21 -1", "20"),
        ("~:20", (None, 20, False), "21", "-1 20"),
        ("20:", (20, None, False), "19", "20 21"),
        ("@1", (0, 1, True), "0 0.5 1", "-1 2"),
        ("@5:", (5, None, True), "5 6", "4"),
        ("@~:5", (None, 5, True), "5 -6", "6"),
        ("-5:-1.5", (-5, Fraction("-1.5"), False), "-5.1 -1.4 0", "-5 -1.5"),
        ("+1e1:2.5E1", (10, 25, False), "9", "10 25"),
        (".5:.75", (Fraction(1, 2), Fraction(3, 4), False), "0.4 0.8", "0.5 0.75"),
    ],
)
def test_a_range_alerts_as_the_guidelines_say(
    text: str, limits: tuple[int | None, int | None, bool], alerts: str, quiet: str
) -> None:
    read = read_range(text)

    assert (read.low, read.high, read.inside) == limits
    for number in alerts.split():
        assert triggers(read, Fraction(number)), number
    for number in quiet.split():
        assert not triggers(read, Fraction(number)), number


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a range"),
        (":", "is not a range"),
        (":10", "is not a range"),
        ("30s", "without a unit"),
        ("5:1:2", "is not a range"),
        ("10\n", "is not a range"),
        ("1e1000000000", "is not a range"),
        ("٣", "is not a range"),
        ("~:", "no value would trigger it"),
        ("@~:", "every value would trigger it"),
        ("20:10", "starts above its end"),
        ("-10", "below 0 write ~:-10"),
    ],
)
def test_an_invalid_range_is_refused_with_its_text(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read_range(text)

    assert repr(text) in str(caught.value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20))
def test_the_bounds_are_exact(bound: object) -> None:
    limits = read_range(f"{bound:f}:")

    assert not triggers(limits, Fraction(str(bound)))
    assert triggers(limits, Fraction(str(bound)) - Fraction(1, 10**30))


RANGES = ["", "10", "10:", "~:5", "-1:2.5", "@3:7", "@~:0"]
VALUES = ["0", "2.5s", "-1%", "7.001", "10", "U", ""]


@given(
    st.lists(
        st.tuples(*map(st.sampled_from, (RANGES, RANGES, "ab", ["", HOST], ["", FLAVOUR, "CE"]))),
        max_size=5,
        unique_by=lambda fields: fields[2:],
    ),
    st.dictionaries(st.sampled_from(["a", "b", "c d"]), st.sampled_from(VALUES)),
    st.sampled_from(["OK", "WARNING", "CRITICAL", "UNKNOWN"]),
)
def test_the_verdict_equals_the_oracles(
    rules: list[tuple[str, ...]], values: dict[str, str], status: str
) -> None:
    data = " ".join(f"'{label}'={value};1;2" for label, value in values.items())
    thresholds = tuple(
        model.Threshold(METRIC, label, warning, critical, host, flavour)
        for warning, critical, label, host, flavour in rules
    )
    result = model.Result(HOST, FLAVOUR, METRIC, status, datetime.now(UTC), performance_data=data)
    profile = model.Profile("x", {}, thresholds=thresholds)

    assert judge([rule(*fields) for fields in rules], data, status) == oracle.judged(
        result, profile
    )
