"""`sam-report now` tells the newest statuses and what is silent, to a reader, without Spark."""

from __future__ import annotations

import json
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
    """Sites of which something was measured long ago, lately, or never."""
    if request.param == "sqlite":
        made = Grid(f"sqlite:///{tmp_path_factory.mktemp('now')}/sam.db")
    else:
        made = Grid(fresh_database(request.getfixturevalue("postgres")))
    made.endpoint("SITE-A", "CE", "ce1")
    made.endpoint("SITE-A", "SRM", "srm1")
    made.endpoint("SITE-B", "SRM", "srm2")
    made.endpoint("CLOSED", "CE", "ce9", validTo="2026-02-01T00:00:00Z")
    for instance, minutes, status in (
        ("CE ce1 ping", 300, "OK"),
        ("CE ce1 ping", 10, "CRITICAL"),
        ("CE ce1 submit", 90, "OK"),
        ("CE ce1 extra", 5, "WARNING"),
        ("SRM srm2 put", 3 * 24 * 60, "OK"),
        ("SRM elsewhere put", 5, "UNKNOWN"),
    ):
        at = NOW - timedelta(minutes=minutes)
        made.result(instance, f"{at:%H:%M}", status, day=at.date())
    at = NOW - timedelta(minutes=1)
    made.result("SRM srm1 put", f"{at:%H:%M}", "OK", vo="physics", day=at.date())
    fold_all(made.loader)
    yield made
    made.dispose()


@pytest.fixture
def config(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of somebody who may only read."""
    monkeypatch.setattr(time, "time", NOW.timestamp)
    (tmp_path / "hour.toml").write_text(PROFILE.format(name="hour", validity=3600))
    (tmp_path / "off.toml").write_text(PROFILE.format(name="off", validity='"off"'))
    path = tmp_path / "sam.toml"
    path.write_text(
        f'[database]\nurl = "{_url(grid.reader)}"\n[report]\nprofiles = ["hour.toml", "off.toml"]\n'
    )
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


def test_a_site_tells_everything_the_worst_first(now: Command) -> None:
    told = json.loads(now("--site", "SITE-A", "--json"))

    assert [(each["metric_name"], each["status"]) for each in told["statuses"]] == [
        ("ping", "CRITICAL"),
        ("extra", "WARNING"),
        ("submit", "OK"),
        ("put", "OK"),
    ]
    assert (told["critical"], told["warning"], told["ok"], told["silent"]) == (1, 1, 2, 2)
    at = (NOW - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:00Z")
    assert told["statuses"][0]["since"] == told["statuses"][0]["measured_at"] == at
    assert told["statuses"][0]["summary"] == "CRITICAL says <ping>"


def test_silent_is_what_is_expected_and_not_heard_of_for_too_long(now: Command) -> None:
    told = json.loads(now("--site", "SITE-A", "--format", "json"))

    # Another VO's result at srm1 is none for these profiles.
    assert [
        (each["metric_name"], each["reports"], each["measured_at"] is None)
        for each in told["silent_instances"]
    ] == [("submit", ["hour"], False), ("put", ["hour", "off"], True)]
    text = now("--site", "SITE-A")
    assert "SITE-A, now: 1 CRITICAL, 1 WARNING, 2 OK, 2 silent" in text
    assert "  CE ce1 submit: last OK 1 h 30 min ago (expected by hour)" in text
    assert "  SRM srm1 put: no result yet (expected by hour, off)" in text


def test_silence_without_validity_is_more_than_two_days(now: Command) -> None:
    told = json.loads(now("--site", "SITE-B", "--report", "off", "--json"))

    assert [each["reports"] for each in told["silent_instances"]] == [["off"]]
    assert "SRM srm2 put: last OK 3 d ago (expected by off)" in now(
        "--site", "SITE-B", "--report", "off"
    )


def test_all_sites_are_counted_the_worst_first(now: Command) -> None:
    told = json.loads(now("--json"))

    assert [(each["site"], each["critical"], each["silent"]) for each in told] == [
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


def test_the_profiles_are_those_of_the_newest_published_days_if_none_is_configured(
    grid: Grid, now: Command, config: Path
) -> None:
    config.write_text(config.read_text().partition("[report]")[0])
    assert "no profile in [report] of sam.toml, and nothing is published" in now("--site", "SITE-A")
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

    told = json.loads(now("--site", "SITE-A", "--json"))

    assert [each["metric_name"] for each in told["silent_instances"]] == ["new"]


def _moment(engine: Engine) -> str:
    return "0" if engine.dialect.name == "sqlite" else "now()"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--site", "SIET-A"], "no site SIET-A: did you mean SITE-A, SITE-B?"),
        (["--site", "x"], "no site x: there are CLOSED, SITE-A, SITE-B"),
        (["--report", "hours"], "no report hours: did you mean hour?"),
    ],
)
def test_an_unknown_name_exits_64_naming_near_ones(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["--config", str(config), "now", *arguments]) == 64
    assert words in capsys.readouterr().err


def test_a_site_that_was_closed_is_empty_but_known(now: Command) -> None:
    assert now("--site", "CLOSED") == "CLOSED, now: no results yet\n"


def test_nothing_slow_is_imported_for_it() -> None:
    script = (
        "import sys; from sam_pipeline.spark_jobs.cli import main\n"
        "try: main(['now', '--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'pyspark', 'jinja2', 'pyarrow', 'numpy', 'alembic', 'py4j'} & set(sys.modules)\n"
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("grid", ["postgresql"], indirect=True)
def test_a_site_is_found_by_its_hosts_and_not_among_all(grid: Grid) -> None:
    # SQLite looks at all 100 000 in a tenth of a second; PostgreSQL takes three times as long.
    with reading(grid.reader) as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = connection.scalars(
            text("EXPLAIN SELECT status FROM current_status WHERE host_name IN ('ce1', 'ce2')")
        ).all()

    told = "\n".join(plan)
    assert "Index Cond: (name = ANY (" in told
    assert "Index Cond: (endpoint_id = e.endpoint_id)" in told
