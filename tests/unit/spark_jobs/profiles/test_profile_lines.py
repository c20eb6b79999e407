"""Every problem of a profile is reported at its line, however the file is laid out."""

from __future__ import annotations

import itertools
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.errors import NoProfile, ProfileError
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, OR

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
RULES = [
    """\
[[thresholds]]
metric = "ping"
label = "time"
warning = "30"
critical = "60"
""",
    """\
[[thresholds]]
metric = "ping"
label = "time"
host = "CE01.example.org"
flavour = "CE"
critical = "@5:10"
""",
    """\
[[thresholds]]
metric = "put"
label = '''
'''
warning = "30"
""".replace("'''\n'''", "'''[[thresholds]] metric = 1'''"),
]
KEY = re.compile(r"""^(?:[\w.]+|"[^"]*") = """, re.MULTILINE)
KEYS = len(KEY.findall(TOP + "".join(TABLES + RULES)))
NOISE = ["", "\n", "# name = 1\n", "# [thresholds]\n\n", "  # '''\n"]


def of(text: str | bytes) -> Profile:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "profile.toml")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        try:
            return read_profile(path)
        except ProfileError as error:
            assert all(problem.startswith(f"{path}") for problem in error.problems)
            assert all("\n" not in problem for problem in error.problems)
            raise ProfileError([problem[len(f"{path}:") :] for problem in error.problems]) from None


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        of(text)
    return list(caught.value.problems)


def assert_problems(reported: list[str], stems: list[str]) -> None:
    """Compare lines and keys, and the beginning of each message."""
    assert [p[: len(stem)] for p, stem in zip(reported, stems, strict=True)] == stems


@st.composite
def profiles(draw: st.DrawFn) -> str:
    """A good profile: its tables in any order, comments and blank lines between the lines."""
    text = TOP + "".join(draw(st.permutations(TABLES + RULES)))
    lines = text.splitlines(keepends=True)
    gaps = draw(st.lists(st.sampled_from(NOISE), min_size=len(lines), max_size=len(lines)))
    return "".join(gap + line for gap, line in zip(gaps, lines, strict=True))


@settings(max_examples=60, deadline=None)
@given(profiles(), st.integers(0, KEYS - 1), st.sampled_from(["1979-05-27", "{}", "[[]]", "-1"]))
def test_a_wrong_value_is_reported_at_the_line_of_its_key(
    text: str, number: int, wrong: str
) -> None:
    assert of(text).thresholds[0].label
    key = list(KEY.finditer(text))[number]
    end = text.index("\n", key.end())
    if text[key.end() : end].startswith("[") and "]" not in text[key.end() : end]:
        end = text.index("\n]\n", key.end()) + 2
    line = text.count("\n", 0, key.end()) + 1
    name = key[0].removesuffix(" = ").strip('"')

    reported = problems(text[: key.end()] + wrong + text[end:])

    assert any(p.startswith(f"{line}: ") and name in p.split(": ")[1] for p in reported), reported


def test_problems_of_thresholds_are_reported_together_each_at_its_line() -> None:
    text = """\
name = "x"
validity_s = "off"
[flavours.CE]
metrics = ["ping", "submit"]
[flavours.SRM]
metrics = ["put"]
[[thresholds]]
metric = "pong"
label = "time"
warning = "30"
[[thresholds]]
metric = "put"
warning = "30s"
flavour = "CE"
[[thresholds]]
metric = "ping"
label = "'my disk'"
[[thresholds]]
metric = "ping"
label = "time"
critical = 60
flavour = "SMR"
hosts = "ce01"
[[thresholds]]
metric = "ping"
label = "load"
critical = "20:10"
host = "ce01.example.org"
[[thresholds]]
critical = "20"
host = "CE01.example.org."
label = "load"
metric = "ping"
"""

    stems = [
        "8: thresholds[1].metric: no metric pong in this profile, did you mean ping?",
        "11: thresholds[2].label: is required",
        "12: thresholds[2].metric: flavour CE has no metric put",
        "13: thresholds[2].warning: '30s' is not a range",
        "15: thresholds[3]: expected warning or critical",
        "17: thresholds[3].label: expected the label without",
        "21: thresholds[4].critical: expected a range in quotes",
        "22: thresholds[4].flavour: no flavour SMR in this profile, did you mean SRM?",
        "23: thresholds[4].hosts: unknown key, did you mean host?",
        "27: thresholds[5].critical: '20:10' starts above",
        "29: thresholds[6]: same metric, label, host and flavour as the rule in line 24",
    ]
    assert_problems(problems(text), stems)


def test_rows_of_an_own_table_are_reported_each_at_its_line() -> None:
    text = f"{TOP}{''.join(TABLES)}".replace('["OK", "OK", "OK"]', '["OK", "FINE", "OK"]')
    line = text.split('"FINE"')[0].count("\n") + 1

    stem = f"{line}: operations.MINE.table[1]: ['OK', 'FINE', 'OK'] is not a triple"
    assert_problems(problems(text), [stem])


GOOD = TOP + "".join(TABLES + RULES)


def test_every_wrong_target_is_reported() -> None:
    text = GOOD.replace("= 80", "= 101").replace("= 85.5", "= nan").replace("= 90", "= true")

    reported = problems(text)

    keys = ["targets.availability", "targets.reliability", "targets.coverage"]
    assert [problem.split(": ")[1] for problem in reported] == keys
    assert all("expected a percentage" in problem for problem in reported)
    assert [problem.split()[-1] for problem in reported] == ["101", "nan", "True"]


@pytest.mark.parametrize(
    "text", [GOOD.encode(), b"\xef\xbb\xbf" + GOOD.encode(), GOOD.replace("\n", "\r\n").encode()]
)
def test_windows_editors_change_nothing(text: bytes) -> None:
    assert of(text) == of(GOOD)


def test_lines_are_counted_with_windows_line_ends_too() -> None:
    text = GOOD.replace("3600", "0").replace("\n", "\r\n")

    assert problems(text.encode())[0].startswith("2: validity_s: expected whole seconds")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = 1\n# caf\xe9\n".encode("latin-1"), "2: byte 0xe9 is not UTF-8: save the file"),
        (b'name = "a"\nvo = "b"\nname = "c"\nfqan = "d"\n', "3: Cannot overwrite a value"),
        (b'name = "a"\nname = "c"', "2: Cannot overwrite a value"),
        (b"[flavours]\n[targets]\n[flavours]\n", "3: Cannot declare ('flavours',) twice"),
        (b"name = \"a\"\ntext = '''\nnever closed\n", "3: "),
        (b"\0", "1: "),
        (b"a = " + b"[" * 100_000, " its values are nested too deeply"),
        (b"a = " + b"9" * 5000, " Exceeds the limit"),
    ],
)
def test_invalid_toml_is_one_problem(text: bytes, problem: str) -> None:
    [reported] = problems(text)

    assert reported.startswith(problem)


def test_very_long_values_are_reported_in_a_short_line() -> None:
    text = GOOD.replace("3600", "9" * 4000).replace('"ops"', f'"{"x" * 4000}\\n"')

    for problem in problems(text):
        assert len(problem) < 200


def test_names_with_invisible_characters_are_refused() -> None:
    for name in ('"a\\u0000"', '" a"', '"a\\n"', '""', '"\\u200b"'):
        [problem] = problems(GOOD.replace('name = "critical"', f"name = {name}"))
        assert problem.startswith("1: name: expected the report's name")


def test_thousands_of_mistakes_are_reported_in_seconds() -> None:
    metrics = "\n".join(f'"metric {number}",' for number in range(2_000))
    validity = "\n".join(f'"metrics {number}" = 0' for number in range(6_000))
    rules = "\n".join(f'[[thresholds]]\nmetric = "m{number}"' for number in range(6_000))
    head = f'name = "x"\nvalidity_s = 1\n[flavours.CE]\nmetrics = [\n{metrics}\n]\n'

    reported = problems(f"{head}[validity]\n{validity}\n{rules}")

    assert len(reported) == 6_000 * 5


LEAVES = st.one_of(
    st.sampled_from(
        ["", "off", "OR", "ping", "CE", "OK", "10", "@1:2", "SCHEDULED/OUTAGE", "time"]
    ),
    st.integers(-1, 101),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["CE", "metrics", "flavours", "table", "metric"]), inner),
    ),
    max_leaves=6,
)
NAMES = re.findall(r"^\w+(?= = )", GOOD, re.MULTILINE)
PLACES = ["", "flavours.CE.", "flavours.", "functions.x.", "validity.", "targets.", "operations.x."]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES), VALUES), max_size=6))
@example([("", "metrics_operation", ["AND"]), ("", "downtimes", [["a/b"]])])
def test_any_values_make_a_profile_or_problems(pairs: list[tuple[str, str, object]]) -> None:
    text = "".join(f"{place}{key} = {toml(value)}\n" for place, key, value in pairs)
    tables = '[flavours.SRM]\nmetrics = ["ping"]\n[[thresholds]]\nmetric = "ping"\n'
    for whole in (
        text,
        f'name = "x"\nvalidity_s = 5\n{text}{tables}',
        GOOD.replace(TOP, TOP + text),
    ):
        try:
            assert of(whole).name
        except ProfileError as error:
            assert error.problems


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=4)), min_size=1, max_size=3)
)
def test_any_bytes_make_a_profile_or_problems(changes: list[tuple[int, bytes]]) -> None:
    data = GOOD.encode()
    for at, piece in changes:
        data = data[:at] + piece + data[at + len(piece) :]
    try:
        assert of(data).name
    except ProfileError as error:
        assert error.problems


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(letter):08x}" for letter in value) + '"'
    return str(value).lower()


def test_a_directory_is_not_a_profile(tmp_path: Path) -> None:
    with pytest.raises(NoProfile):
        read_profile(tmp_path)
