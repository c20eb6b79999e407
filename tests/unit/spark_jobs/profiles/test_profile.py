"""Profiles: read, refused with every problem at its line, recorded."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.errors import NoProfile, ProfileError
from sam_pipeline.spark_jobs.profiles.file import read_profile, read_profiles, recorded_profile
from sam_pipeline.spark_jobs.profiles.keys import KEYS
from sam_pipeline.spark_jobs.profiles.profile import Function, Profile
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, OR

SHORT = """\
name = "critical"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profile.toml"


def read(file: Path, text: str) -> Profile:
    file.write_text(text)
    return read_profile(file)


def problems(file: Path, text: str) -> list[str]:
    """The problems, without the path in front."""
    with pytest.raises(ProfileError) as caught:
        read(file, text)
    assert caught.value.exit_code == 78
    return [problem.removeprefix(f"{file}:") for problem in caught.value.problems]


def assert_problems(found: list[str], stems: list[str]) -> None:
    """Compare lines and keys, and the beginning of each message."""
    assert [p[: len(stem)] for p, stem in zip(found, stems, strict=True)] == stems


def test_a_short_profile_gets_the_defaults_of_the_rules(file: Path) -> None:
    profile = read(file, SHORT)

    assert (profile.metrics_operation, profile.functions_operation) == ("AND", "AND")
    assert profile.flavours[0].endpoints_operation == "OR"
    assert profile.functions == (Function("CE", ("CE",), "OR"),)
    assert profile.counts("scheduled", "OUTAGE") and not profile.counts("UNSCHEDULED", "OUTAGE")
    assert profile.targets.reliability == 85
    assert profile.vo is None


def test_the_documented_defaults_are_those_of_a_short_profile(file: Path) -> None:
    short = read(file, f'{SHORT}[functions.x]\nflavours = ["CE"]\n')

    assert {path: key.default for path, key in KEYS.items() if key.default is not None} == {
        "metrics_operation": short.metrics_operation,
        "functions_operation": short.functions_operation,
        "downtimes": list(short.downtimes),
        "flavours.NAME.endpoints_operation": short.flavours[0].endpoints_operation,
        "functions.NAME.flavours_operation": short.functions[0].flavours_operation,
        **{f"targets.{name}": value for name, value in vars(short.targets).items()},
    }


@pytest.mark.parametrize("key", ["name", "validity_s", "metrics"])
def test_a_missing_required_key_is_a_problem(file: Path, key: str) -> None:
    lines = [line for line in SHORT.splitlines() if not line.startswith(f"{key} = ")]

    assert any(key in problem for problem in problems(file, "\n".join(lines)))
    assert any(path.endswith(key) for path, known in KEYS.items() if known.required)


def test_validity_may_differ_by_metric(file: Path) -> None:
    text = SHORT.replace('"off"', "3600").replace('["ping"]', '["ping", "org.sam.X"]')

    profile = read(file, text + '[validity]\n"org.sam.X" = 7200\nping = "off"\n')

    assert profile.validity("org.sam.X") == 7200
    assert profile.validity("ping") is None
    assert profile.validity_s == 3600


def test_an_empty_vo_means_results_without_one(file: Path) -> None:
    assert read(file, f'vo = ""\n{SHORT}').vo == ""


def test_every_problem_is_reported_with_its_line(file: Path) -> None:
    text = """\
name = "critical"
validity_s = "of"
vos = "ops"
[flavours.CE]
metrics = ["ping"]
endpoint_operation = "OR"
[flavours.SRM]
[functions.compute]
flavours = ["CE", "ARC"]
flavours_operation = "MOST"
[targets]
availability = 101
[validity]
pong = 5
"""

    stems = [
        "2: validity_s: expected whole seconds",
        "3: vos: unknown key, did you mean vo?",
        "6: flavours.CE.endpoint_operation: unknown key, did you mean endpoints_operation?",
        "7: flavours.SRM.metrics: expected a list of metric names",
        "9: functions.compute.flavours[2]: flavour ARC has no metrics",
        "10: functions.compute.flavours_operation: expected one of AND, OR",
        "12: targets.availability: expected a percentage",
        "14: validity.pong: unknown key, did you mean ping?",
    ]
    assert_problems(problems(file, text), stems)


def test_the_most_specific_target_counts(file: Path) -> None:
    profile = read(
        file,
        f"""{SHORT}
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
""",
    )
    groups = [("federation", "North-West"), ("tier", "1"), ("tier", "9")]

    site, member = (profile.targets_of_site(site, groups) for site in ("SITE-A", "SITE-B"))
    other = profile.targets_of_site("SITE-B", [])

    assert (site.availability, member.availability, other.availability) == (70, 97, 80)
    # Of the targets of several groups the strictest one.
    assert (site.unknown, member.unknown, other.unknown) == (5, 5, 10)
    assert site.reliability == member.reliability == 85
    assert profile.targets_of_group(("federation", "North-West")).availability == 90
    assert recorded_profile(profile.document) == profile


def test_a_mistyped_target_of_a_group_or_site_is_a_problem(file: Path) -> None:
    text = f"""\
{SHORT}\
[targets]
site = 5
[targets.groups]
tier = 2
[targets.groups.region.North]
availabilty = 90
unknown = 200
[targets.sites."SITE-A"]
coverage = 90
"""

    stems = [
        "6: targets.site: unknown key, did you mean sites?",
        "8: targets.groups.tier: expected a table [targets.groups.tier]",
        "10: targets.groups.region.North.availabilty: unknown key, did you mean availability?",
        "11: targets.groups.region.North.unknown: expected a percentage",
        "13: targets.sites.SITE-A.coverage: unknown key",
    ]
    assert_problems(problems(file, text), stems)


def test_a_metric_or_a_flavour_listed_twice_is_a_problem(file: Path) -> None:
    text = SHORT.replace('["ping"]', '["ping", "put", "ping"]')
    text += '[functions.x]\nflavours = ["CE", "CE"]\n'

    stems = [
        "4: flavours.CE.metrics[3]: 'ping' is listed twice",
        "6: functions.x.flavours[2]: 'CE' is listed twice",
    ]
    assert_problems(problems(file, text), stems)


def test_validity_is_required(file: Path) -> None:
    [problem] = problems(file, SHORT.replace('validity_s = "off"\n', ""))

    assert "validity_s: is required" in problem


def test_exclusions_are_not_part_of_a_profile(file: Path) -> None:
    [problem] = problems(file, f'{SHORT}\n[[exclusions]]\nmetric = "ping"\n')

    assert problem.startswith("6: exclusions: unknown key")


def test_broken_toml_is_one_problem_at_its_line(file: Path) -> None:
    [problem] = problems(file, f"{SHORT}oops\n")

    assert problem.startswith("5: Expected '='")


def test_a_missing_file_is_a_missing_input(tmp_path: Path) -> None:
    with pytest.raises(NoProfile) as caught:
        read_profile(tmp_path / "none.toml")

    assert caught.value.exit_code == 66


def test_two_profiles_may_not_define_one_report(tmp_path: Path) -> None:
    paths = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for path in paths:
        path.write_text(SHORT)

    with pytest.raises(ProfileError, match=r"another profile .* critical"):
        read_profiles(paths)


def test_a_run_can_read_back_the_profile_it_recorded(file: Path) -> None:
    profile = read(file, SHORT + "[targets]\navailability = 99.5\n")

    read_back = recorded_profile(profile.document)

    assert read_back == profile
    assert read_back.targets.availability == Fraction("99.5")


def test_the_digest_depends_on_content_and_not_on_layout(file: Path) -> None:
    digest = read(file, SHORT).digest

    assert read(file, f"# a comment\n{SHORT}").digest == digest
    assert read(file, SHORT.replace("ping", "pong")).digest != digest


def test_an_own_operation_may_give_each_pair_once(file: Path) -> None:
    pairs = [(a, b) for a, b in product(range(6), repeat=2) if a <= b]
    table = [[FOLDED[a], FOLDED[b], FOLDED[OR.table[a][b]]] for a, b in pairs]

    profile = read(
        file, f'metrics_operation = "MINE"\n{SHORT}\n[operations.MINE]\ntable = {table}\n'
    )

    own = profile.operations[profile.operation_number("MINE")]
    assert own.answers == OR.answers


def test_a_table_that_is_not_associative_is_refused_with_the_triple(file: Path) -> None:
    # DOWNTIME beats CRITICAL beats MISSING beats DOWNTIME: no order of children is like another.
    def result(a: str, b: str) -> str:
        beats = {("DOWNTIME", "CRITICAL"), ("CRITICAL", "MISSING"), ("MISSING", "DOWNTIME")}
        if (a, b) in beats or (b, a) in beats:
            return a if (a, b) in beats else b
        return FOLDED[max(FOLDED.index(a), FOLDED.index(b))]

    table = [[a, b, result(a, b)] for a in FOLDED for b in FOLDED]

    [problem] = problems(file, f"{SHORT}\n[operations.MINE]\ntable = {table}\n")

    assert "operations.MINE.table: not associative at (MISSING, DOWNTIME, CRITICAL)" in problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("OK", "OK", "WARNING"), "not idempotent: OK with OK is WARNING"),
        (("OK", "WARNING", "OK"), "not commutative: OK with WARNING is OK"),
        (("OK", "WARNING", "FINE"), "is not a triple"),
    ],
)
def test_a_bad_table_is_refused_with_the_reason(
    file: Path, change: tuple[str, str, str], message: str
) -> None:
    given = {(a, b): FOLDED[max(FOLDED.index(a), FOLDED.index(b))] for a in FOLDED for b in FOLDED}
    given[change[0], change[1]] = change[2]
    table = [[a, b, result] for (a, b), result in given.items()]

    [problem] = problems(file, f"{SHORT}\n[operations.MINE]\ntable = {table}\n")

    assert message in problem


def test_an_incomplete_table_is_refused_with_the_missing_pairs(file: Path) -> None:
    table = '[["OK", "WARNING", "OK"]]'

    [problem] = problems(file, f"{SHORT}\n[operations.MINE]\ntable = {table}\n")

    assert "not complete: no result for OK with OK; no result for OK with UNKNOWN" in problem
