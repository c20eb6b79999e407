"""`sam-report` answers wrong arguments and a broken setup with one line and an exit code."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.cli import main, make_parser
from sam_pipeline.spark_jobs.command_line.arguments import requested_or_due
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import make_engine, writing

TODAY = date(2026, 11, 20)
PROFILE = 'name = "x"\nvalidity_s = "off"\n[flavours.CE]\nmetrics = ["a"]\n'


@pytest.fixture
def config(tmp_path: Path, empty_database: Path) -> Path:
    """A sam.toml with a database without rows, and a good profile."""
    shutil.copy(empty_database, tmp_path)
    (tmp_path / "good.toml").write_text(PROFILE)
    path = tmp_path / "sam.toml"
    path.write_text(
        f'[database]\nurl = "sqlite:///{tmp_path}/sam.db"\n[report]\nprofiles = ["good.toml"]\n'
    )
    return path


def requested(*arguments: str) -> Period | None:
    return requested_or_due(make_parser().parse_args(["run", *arguments]), TODAY)


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    return line


def test_a_period_is_a_day_a_range_or_a_month() -> None:
    day = date(2026, 11, 14)

    assert requested("--day", "2026-11-14") == Period(day, day)
    assert requested("--from", "2026-11-14", "--to", "2026-11-20") == Period(day, TODAY)
    assert requested("--month", "2026-02") == Period(date(2026, 2, 1), date(2026, 2, 28))
    assert requested("--month", "2024-02") == Period(date(2024, 2, 1), date(2024, 2, 29))


def test_due_days_need_no_period() -> None:
    assert requested("--due") is None


def test_the_present_month_ends_today() -> None:
    assert requested("--month", "2026-11") == Period(date(2026, 11, 1), TODAY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--day", "2026-11-21"], "2026-11-21 is in the future: today is 2026-11-20"),
        (["--month", "2026-12"], "is in the future"),
        (["--from", "2026-11-19", "--to", "2026-11-21"], "is in the future"),
        (["--from", "2026-11-14", "--to", "2026-11-13"], "is before"),
        (["--from", "2026-11-14"], "expected one of"),
        (["--day", "2026-11-14", "--month", "2026-11"], "expected one of"),
        ([], "expected one of --day D, --from D --to D, --month M, --due"),
        (["--due", "--day", "2026-11-14"], "expected one of"),
        (["--due", "--force"], "--due leaves frozen days as they are"),
    ],
)
def test_other_periods_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ReportUsage, match=message):
        requested(*arguments)


@pytest.mark.parametrize("text", ["2026-02-30", "14.11.2026", "2026-11", "today"])
def test_a_bad_day_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["show", "--day", text])

    assert caught.value.code == 64
    assert "is not a date" in capsys.readouterr().err


def test_a_day_in_the_future_exits_64(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()

    code = main(["--config", str(config), "run", "--day", str(tomorrow)])

    assert code == 64
    assert "is in the future" in error_of(capsys)


def test_a_run_without_profile_exits_64(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(config.read_text().partition("[report]")[0])

    assert main(["run", "--config", str(config), "--day", "2026-11-14"]) == 64
    assert "which report?" in error_of(capsys)


def test_a_missing_profile_exits_66(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--config", str(config), "run", "--profile", "no.toml", "--day", "2026-11-14"])

    assert code == 66
    assert error_of(capsys) == "sam-report: error: no.toml: No such file or directory"


def test_a_profile_with_an_unknown_key_exits_78(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(f'metric_operation = "OR"\n{PROFILE}')

    assert (
        main(["--config", str(config), "run", "--profile", str(bad), "--day", "2026-11-14"]) == 78
    )
    assert "unknown key, did you mean metrics_operation?" in error_of(capsys)
    assert main(["profile", "check", str(bad)]) == 78
    assert f"{bad}:1: metric_operation: unknown key" in error_of(capsys)


@pytest.mark.parametrize("gone", ["[database]", "sam.db"])
def test_good_profiles_are_listed_with_what_they_count_without_a_database_too(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], gone: str
) -> None:
    good, other = tmp_path / "good.toml", tmp_path / "other.toml"
    other.write_text(PROFILE.replace('"x"', '"y"').replace('["a"]', '["a", "b"]'))
    if gone == "[database]":
        config.write_text("")
    else:
        (tmp_path / "sam.db").unlink()
    command = ["profile", "check", str(good), str(other), "--config", str(config)]

    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second, reason = (line for line in lines if not line.startswith("  "))
    assert first == f"{good}: OK, report x: 1 flavour, 1 metric, 1 function"
    assert second == f"{other}: OK, report y: 1 flavour, 2 metrics, 1 function"
    assert sum(line.startswith("  Up when ") for line in lines) == 2
    assert gone in reason and "only the files were checked" in reason
    assert main([*command, "--json"]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert [(document["name"], document["observed"]) for document in documents] == [
        ("x", None),
        ("y", None),
    ]


def test_problems_of_several_profiles_are_reported_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"vos = 1\n{PROFILE}".replace('"x"', f'"{name}"'))

    assert main(["profile", "check", str(tmp_path / "one"), str(tmp_path / "two")]) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(": ")[2] for line in captured.err.splitlines()] == [
        f"{tmp_path}/{name}:1" for name in ("one", "two")
    ]


@pytest.mark.parametrize("days", ["0", "-1", "x", "10000"])
def test_a_bad_number_of_days_is_a_usage_error(days: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["profile", "check", "x.toml", "--days", days])

    assert caught.value.code == 64


@pytest.mark.parametrize("command", ["show", "run"])
def test_a_missing_database_exits_78(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "sam.db").unlink()

    assert main(["--config", str(config), command, "--day", "2026-11-14"]) == 78
    assert "sam.db" in error_of(capsys)


def test_a_database_without_schema_exits_78(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in tmp_path.glob("sam.db*"):
        file.unlink()
    (tmp_path / "sam.db").touch()

    assert main(["--config", str(config), "show", "--day", "2026-11-14"]) == 78
    assert "sam-db upgrade" in error_of(capsys)


def test_a_run_with_nothing_due_starts_no_spark(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert main(["--config", str(config), "run", "--due"]) == 0
    assert capsys.readouterr().out == "x: nothing is due\n"
    assert main(["--config", str(config), "run", "--due", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_day_whose_results_were_pruned_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing(make_engine(f"sqlite:///{tmp_path}/sam.db")) as connection:
        connection.execute(text("INSERT INTO horizon (day) VALUES ('2026-11-10')"))

    code = main(["--config", str(config), "run", "--from", "2026-11-01", "--to", "2026-11-14"])

    assert code == 64
    error = error_of(capsys)
    assert "2026-11-01 to 2026-11-09: frozen, as results before 2026-11-10 were pruned" in error
    assert "--force" in error


def test_without_java_a_run_exits_69_and_names_the_package(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert main(["--config", str(config), "run", "--day", "2026-11-14"]) == 69
    *warned, line = capsys.readouterr().err.splitlines()
    assert "apt-get install default-jre-headless" in line
    assert all("never seen, so MISSING" in line for line in warned)


def test_without_java_a_warm_up_exits_69_and_names_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert main(["warm-up"]) == 69
    assert "apt-get install default-jre-headless" in capsys.readouterr().err


def test_an_unknown_report_exits_64(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--config", str(config), "show", "--day", "2026-11-14", "--report", "nightly"])

    assert code == 64
    assert "no report nightly" in error_of(capsys)


def test_a_site_without_published_days_says_so(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    code = main(["--config", str(config), "site", "--month", "2026-10", "--out", str(out)])

    assert code == 0
    assert capsys.readouterr().out == f"{out}/index.html\n"
    assert "No data: no report is published" in (out / "index.html").read_text()
