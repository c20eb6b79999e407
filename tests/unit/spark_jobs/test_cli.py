"""`sam-report` answers wrong arguments and a broken setup with one line and an exit code."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.cli import make_parser
from sam_pipeline.spark_jobs.command_line import requested_or_due
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period
from tests.support.invoke import Answer, invoke

TODAY = date(2026, 11, 20)
PROFILE = 'name = "x"\nvalidity_s = "off"\n[flavours.CE]\nmetrics = ["a"]\n'
OF_DAY = ("--day", "2026-11-14")


@pytest.fixture
def here(tmp_path: Path, empty_database: Path) -> Path:
    """A directory with a database without rows, and a good profile."""
    shutil.copy(empty_database, tmp_path)
    (tmp_path / "good.toml").write_text(PROFILE)
    text = '[database]\nurl = "sqlite:///sam.db"\n[report]\nprofiles = ["good.toml"]\n'
    (tmp_path / "sam.toml").write_text(text)
    return tmp_path


def run(here: Path, *arguments: str, code: int = 0) -> Answer:
    # Without Java: whatever starts Spark fails.
    answer = invoke("sam-report", *arguments, cwd=here, env={"PATH": str(here), "HOME": str(here)})
    assert answer.code == code, str(answer)
    return answer


def error_of(here: Path, *arguments: str, code: int) -> str:
    answer = run(here, *arguments, code=code)
    assert answer.out == ""
    [line] = answer.err.splitlines()
    return line


def requested(*arguments: str) -> Period | None:
    return requested_or_due(make_parser().parse_args(["run", *arguments]), TODAY)


def test_a_period_is_a_day_a_range_or_a_month_and_due_days_need_none() -> None:
    for arguments, first, last in (
        ("--day 2026-11-14", date(2026, 11, 14), date(2026, 11, 14)),
        ("--from 2026-11-14 --to 2026-11-20", date(2026, 11, 14), TODAY),
        ("--since 2026-11-14", date(2026, 11, 14), TODAY),
        ("--month 2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("--month 2026-11", date(2026, 11, 1), TODAY),
    ):
        assert requested(*arguments.split()) == Period(first, last)
    assert requested("--due") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--day 2026-11-21", "2026-11-21 is in the future: today is 2026-11-20"),
        ("--from 2026-11-14 --to 2026-11-13", "is before"),
        ("--to 2026-11-14", "expected one of"),
        ("--since 2026-11-14 --month 2026-11", "expected one of"),
        ("--since 2026-11-21", "2026-11-21 is in the future"),
        ("", "expected one of --day D, --from D \\[--to D\\], --month M, --due"),
        ("--due --day 2026-11-14", "expected one of"),
        ("--due --force", "--due leaves frozen days as they are"),
    ],
)
def test_other_periods_are_refused(arguments: str, message: str) -> None:
    with pytest.raises(ReportUsage, match=message):
        requested(*arguments.split())


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (64, "run --day TOMORROW", "is in the future"),
        (64, "show --day 2026-11-14 --report nightly", "no report nightly"),
        (66, "run --profile no.toml --day 2026-11-14", "no.toml: No such file or directory"),
        (69, "warm-up", "apt-get install default-jre-headless"),
        (64, "show --day 2026-02-30", "is not a date"),
        (64, "show --day 2026-11-14 --json --format csv", "--json does not go with --format"),
        (64, "profile check x --since 30", "'30' is not a date"),
    ],
)
def test_wrong_arguments_are_refused(here: Path, code: int, arguments: str, message: str) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    command = arguments.replace("TOMORROW", str(tomorrow)).split()

    assert message in run(here, *command, code=code).err


def test_a_broken_setup_is_one_line(here: Path) -> None:
    for command in ("show", "run"):
        (here / "sam.db").rename(here / "moved")
        assert "sam.db" in error_of(here, command, *OF_DAY, code=78)
        (here / "moved").rename(here / "sam.db")
    (here / "empty.db").touch()
    config = (here / "sam.toml").read_text()
    (here / "sam.toml").write_text(config.replace("sam.db", "empty.db"))
    assert "sam-db upgrade" in error_of(here, "show", *OF_DAY, code=78)
    (here / "sam.toml").write_text(config.partition("[report]")[0])
    assert "no profile: use --profile" in error_of(here, "run", *OF_DAY, code=64)


def test_bad_profiles_are_refused_with_all_their_problems(here: Path) -> None:
    for name in ("one", "two"):
        (here / name).write_text(f"vos = 1\n{PROFILE}".replace('"x"', f'"{name}"'))

    assert "did you mean vo?" in error_of(here, "run", "--profile", "one", *OF_DAY, code=78)
    refused = run(here, "profile", "check", "one", "two", code=78)
    assert refused.out == ""
    places = [line.split(": ")[2] for line in refused.err.splitlines()]
    assert places == ["one:1", "two:1"]


def test_good_profiles_are_listed_with_what_they_count_without_a_database_too(here: Path) -> None:
    other = PROFILE.replace('"x"', '"y"').replace('["a"]', '["a", "b"]')
    (here / "other.toml").write_text(other)
    (here / "sam.db").unlink()

    lines = run(here, "profile", "check", "good.toml", "other.toml").out.splitlines()

    first, second, reason = (line for line in lines if not line.startswith("  "))
    assert first == "good.toml: OK, report x: 1 flavour, 1 metric, 1 function"
    assert second == "other.toml: OK, report y: 1 flavour, 2 metrics, 1 function"
    assert "only the files were checked" in reason


def test_a_run_with_nothing_due_needs_no_spark_and_others_name_the_package_of_java(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.invoke._shared_spark", nullcontext)

    assert run(here, "run", "--due").out == "x: nothing is due\n"
    assert json.loads(run(here, "run", "--due", "--json").out) == []
    *warned, line = run(here, "run", *OF_DAY, code=69).err.splitlines()
    assert "apt-get install default-jre-headless" in line
    assert all("never seen, so MISSING" in line for line in warned)


def test_a_site_without_published_days_says_so(here: Path) -> None:
    assert run(here, "pages", "--month", "2026-10", "--out", "out").out == "out/index.html\n"
    assert "No data: no report is published" in (here / "out" / "index.html").read_text()
