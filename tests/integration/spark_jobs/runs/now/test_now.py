"""`sam-report now` shows the newest statuses and silent metrics to a reader, without Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.sql.database.engine import name_of, reading, writing
from sam_pipeline.sql.loading.fold import fold_all
from tests.services.postgres import fresh_database
from tests.support.reports.database import Grid

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
PROFILE = """
name = "{name}"
validity_s = {validity}
vo = "ops"
[flavours.CE]
metrics = ["ping", "submit"]
[flavours.SRM]
metrics = ["put"]
"""

Command = Callable[..., str]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def grid(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grid]:
    """Sites with results from long ago, from now, and none at all."""
    if request.param == "sqlite":
        sites = Grid(f"sqlite:///{tmp_path_factory.mktemp('now')}/sam.db")
    else:
        sites = Grid(fresh_database(request.getfixturevalue("postgres")))
    sites.endpoint("SITE-A", "CE", "ce1")
    sites.endpoint("SITE-A", "SRM", "srm1")
    sites.endpoint("SITE-B", "SRM", "srm2")
    sites.endpoint("CLOSED", "CE", "ce9", validTo="2026-02-01T00:00:00Z")
    for instance, minutes, status in (
        ("CE ce1 ping", 300, "OK"),
        ("CE ce1 ping", 10, "CRITICAL"),
        ("CE ce1 submit", 90, "OK"),
        ("CE ce1 extra", 5, "WARNING"),
        ("SRM srm2 put", 3 * 24 * 60, "OK"),
        ("SRM elsewhere put", 5, "UNKNOWN"),
    ):
        at = NOW - timedelta(minutes=minutes)
        sites.result(instance, f"{at:%H:%M}", status, day=at.date(), publisher=f"key:{status}")
    at = NOW - timedelta(minutes=1)
    sites.result("SRM srm1 put", f"{at:%H:%M}", "OK", vo="physics", day=at.date())
    fold_all(sites.loader)
    yield sites
    sites.dispose()


@pytest.fixture
def config(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a user who may only read."""
    monkeypatch.setattr(time, "time", NOW.timestamp)
    (tmp_path / "hour.toml").write_text(PROFILE.format(name="hour", validity=3600))
    (tmp_path / "off.toml").write_text(PROFILE.format(name="off", validity='"off"'))
    path = tmp_path / "sam.toml"
    path.write_text(
        f'[database]\nurl = "{_url(grid.reader)}"\n[report]\nprofiles = ["hour.toml", "off.toml"]\n'
    )
    path.chmod(0o600)
    return path


def _url(engine: Engine) -> str:
    if engine.dialect.name == "sqlite":
        return name_of(engine)
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture
def now(config: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str) -> str:
        assert main(["--config", str(config), "now", *arguments]) == 0
        return capsys.readouterr().out

    return command


def test_a_site_shows_all_its_metrics_worst_first(now: Command) -> None:
    document = json.loads(now("--site", "SITE-A", "--json"))

    assert [(metric["metric_name"], metric["status"]) for metric in document["statuses"]] == [
        ("ping", "CRITICAL"),
        ("extra", "WARNING"),
        ("submit", "OK"),
        ("put", "OK"),
    ]
    counts = [document[name] for name in ("critical", "warning", "ok", "silent")]
    assert counts == [1, 1, 1, 2]  # submit is silent, and no longer OK
    at = (NOW - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:00Z")
    worst = document["statuses"][0]
    assert worst["since"] == worst["measured_at"] == at
    assert worst["summary"] == "CRITICAL says <ping>"
    assert worst["publisher"] == "key:CRITICAL"
    assert document["statuses"][-1]["publisher"] == "anonymous"
    lines = now("--site", "SITE-A").splitlines()
    assert any(line.startswith("CRITICAL ") and line.endswith(" key:CRITICAL") for line in lines)
    assert "anonymous" not in "".join(lines)


def test_an_expected_metric_is_silent_when_its_last_result_is_too_old(now: Command) -> None:
    document = json.loads(now("--site", "SITE-A", "--format", "json"))

    # The result of another VO at srm1 does not count for these profiles.
    assert [
        (metric["metric_name"], metric["reports"], metric["measured_at"] is None)
        for metric in document["silent_instances"]
    ] == [("submit", ["hour"], False), ("put", ["hour", "off"], True)]
    lines = now("--site", "SITE-A").splitlines()
    assert lines[0].startswith("SITE-A")
    assert lines[0].endswith("1 CRITICAL, 1 WARNING, 1 OK, 2 silent")
    [submit] = [line for line in lines if line.startswith("  CE ce1 submit: ")]
    assert "last OK 1 h 30 min ago" in submit
    assert "by hour)" in submit
    [put] = [line for line in lines if line.startswith("  SRM srm1 put: ")]
    assert "no result" in put
    assert "by hour, off)" in put


def test_without_validity_a_metric_is_silent_after_two_days(now: Command) -> None:
    document = json.loads(now("--site", "SITE-B", "--json"))

    assert [metric["reports"] for metric in document["silent_instances"]] == [["hour", "off"]]
    assert "SRM srm2 put: last OK 3 d ago" in now("--site", "SITE-B")


def test_all_sites_are_listed_with_counts_worst_first(now: Command) -> None:
    rows = json.loads(now("--json"))

    assert [(row["site"], row["critical"], row["silent"]) for row in rows] == [
        ("SITE-A", 1, 2),
        ("SITE-B", 0, 1),
        ("", 0, 0),
    ]
    assert now().splitlines()[0].split() == [
        "site",
        "CRITICAL",
        "UNKNOWN",
        "WARNING",
        "OK",
        "silent",
    ]
    assert "(no site)" in now()


def test_without_configured_profiles_those_of_the_newest_published_days_apply(
    grid: Grid, now: Command, config: Path
) -> None:
    config.write_text(config.read_text().partition("[report]")[0])
    assert "no profile in [report]" in now("--site", "SITE-A")
    with writing(grid.engine) as connection:
        for day, metric in (("2026-01-01", "gone"), ("2026-01-02", "new")):
            flavours = {"CE": {"metrics": [metric]}}
            profile = {"name": "old", "validity_s": 3600, "vo": "ops", "flavours": flavours}
            connection.execute(
                text(
                    "INSERT INTO run (report, day, started_at, state, profile)"
                    f" VALUES ('old', :day, {_moment(grid.engine)}, 'published', :profile)"
                ),
                {"day": day, "profile": json.dumps(profile)},
            )

    document = json.loads(now("--site", "SITE-A", "--json"))

    assert [metric["metric_name"] for metric in document["silent_instances"]] == ["new"]


def _moment(engine: Engine) -> str:
    return "0" if engine.dialect.name == "sqlite" else "now()"


@pytest.mark.parametrize(
    ("arguments", "problem", "names"),
    [
        (["--site", "SIET-A"], "no site SIET-A", "SITE-A, SITE-B"),
        (["--site", "x"], "no site x", "CLOSED, SITE-A, SITE-B"),
        (["--report", "hours"], "no report hours", "hour"),
    ],
)
def test_an_unknown_name_exits_64_with_similar_names(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    problem: str,
    names: str,
) -> None:
    assert main(["--config", str(config), "now", *arguments]) == 64
    error = capsys.readouterr().err
    assert re.search(rf"{problem}: .*\b{names}\b", error)


def test_a_site_that_was_closed_is_empty_but_known(now: Command) -> None:
    [line] = now("--site", "CLOSED").splitlines()
    assert line.startswith("CLOSED")
    assert "no results" in line


def test_no_slow_package_is_imported() -> None:
    script = (
        "import sys; from sam_pipeline.spark_jobs.cli import main\n"
        "try: main(['now', '--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'pyspark', 'jinja2', 'pyarrow', 'numpy', 'alembic', 'py4j'} & set(sys.modules)\n"
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )

    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize("grid", ["postgresql"], indirect=True)
def test_the_statuses_of_a_site_are_looked_up_by_its_hosts(grid: Grid) -> None:
    # SQLite scans all 100 000 in a tenth of a second; PostgreSQL takes three times as long.
    with reading(grid.reader) as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = connection.scalars(
            text("EXPLAIN SELECT status FROM current_status WHERE host_name IN ('ce1', 'ce2')")
        ).all()

    conditions = [line.partition("Index Cond: ")[2] for line in plan if "Index Cond: " in line]
    assert any(condition.startswith("(name = ANY (") for condition in conditions)
    assert "(endpoint_id = e.endpoint_id)" in conditions
