"""`sam-report now --report` answers whether a site is up, as the report counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.loading.fold import fold_all
from tests.services.postgres import fresh_database
from tests.support.reports.database import DAY, Grid

NOW = datetime(DAY.year, DAY.month, DAY.day, 15, tzinfo=UTC)
PROFILE = """
name = "critical"
validity_s = 7200
vo = "ops"
[flavours.CE]
metrics = ["ping", "submit"]
[flavours.SRM]
metrics = ["put"]
[functions.compute]
flavours = ["CE"]
[functions.storage]
flavours = ["SRM"]
"""
ANY_VO = """
name = "any"
validity_s = 7200
[flavours.CE]
metrics = ["ping"]
"""

Command = Callable[..., str]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def grid(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grid]:
    """A site that is up, one that fails, one that is silent, and one in downtime."""
    if request.param == "sqlite":
        sites = Grid(f"sqlite:///{tmp_path_factory.mktemp('now')}/sam.db")
    else:
        sites = Grid(fresh_database(request.getfixturevalue("postgres")))
    for site in ("UP", "FAILS", "SILENT", "REPAIR"):
        sites.endpoint(site, "CE", f"ce.{site.lower()}")
        sites.endpoint(site, "SRM", f"srm.{site.lower()}")
        sites.result(f"CE ce.{site.lower()} ping", "14:30", "OK")
        sites.result(f"CE ce.{site.lower()} submit", "14:00", "OK")
    for site, at, status in (
        ("UP", "14:50", "OK"),
        ("FAILS", "10:00", "OK"),
        ("FAILS", "13:30", "CRITICAL"),
        ("FAILS", "14:50", "CRITICAL"),
        ("SILENT", "12:59", "OK"),
        ("REPAIR", "14:50", "CRITICAL"),
    ):
        sites.result(f"SRM srm.{site.lower()} put", at, status, publisher=f"key:{site}")
    # What the report does not count: another VO, and a metric that its profile does not name.
    sites.result("CE ce.up ping", "14:40", "CRITICAL", vo="physics")
    sites.result("CE ce.up extra", "14:40", "CRITICAL")
    sites.downtime("14:00", "18:00", siteName="REPAIR", description="new switch")
    fold_all(sites.loader)
    yield sites
    sites.dispose()


@pytest.fixture(params=["reader", "reporter"])
def now(
    request: pytest.FixtureRequest,
    grid: Grid,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """The command, as a login that may read, or that may write reports."""
    monkeypatch.setattr(time, "time", NOW.timestamp)
    (tmp_path / "critical.toml").write_text(PROFILE)
    (tmp_path / "any.toml").write_text(ANY_VO)
    engine = getattr(grid, request.param)
    url = name_of(engine)
    if engine.dialect.name == "postgresql":
        url = engine.url.render_as_string(hide_password=False)
    config = tmp_path / "sam.toml"
    config.write_text(
        f'[database]\nurl = "{url}"\n[report]\nprofiles = ["critical.toml", "any.toml"]\n'
    )
    config.chmod(0o600)

    def command(*arguments: str, exit_code: int = 0) -> str:
        assert main(["--config", str(config), "now", *arguments]) == exit_code
        printed = capsys.readouterr()
        return printed.err if exit_code else printed.out

    return command


def test_a_report_shows_each_site_once_as_it_folds_it_worst_first(now: Command) -> None:
    sites = json.loads(now("--report", "critical", "--json"))

    assert [(site["site"], site["status"], site["because"]) for site in sites] == [
        ("FAILS", "CRITICAL", ["storage"]),
        ("SILENT", "MISSING", ["storage"]),
        ("REPAIR", "DOWNTIME", ["compute", "storage"]),
        ("UP", "OK", []),
    ]
    [repair] = [site for site in sites if site["site"] == "REPAIR"]
    assert (repair["endpoints_in_downtime"], repair["endpoints"]) == (2, 2)
    assert repair["downtime_until"] == "2026-11-14T18:00:00Z"


def test_the_table_starts_with_the_number_of_sites_by_status(now: Command) -> None:
    head, _, columns, _, fails, *_ = now("--report", "critical").splitlines()

    assert head.endswith("1 CRITICAL, 1 MISSING, 1 DOWNTIME, 1 OK")
    assert columns.split()[:2] == ["site", "status"]
    assert "storage (srm.fails put for 1 h 30 min)" in fails


def test_a_site_shows_the_functions_endpoints_and_metrics_that_make_it_so(now: Command) -> None:
    document = json.loads(now("--report", "critical", "--site", "FAILS", "--json"))

    deciding = [thing for thing in document["things"] if thing["decides"]]
    assert [(thing["level"], thing["status"]) for thing in deciding] == [
        (level, "CRITICAL") for level in ("site", "function", "service", "endpoint", "metric")
    ]
    assert deciding[-1]["since"] == "2026-11-14T13:30:00Z"
    assert deciding[-1]["measured_at"] == "2026-11-14T14:50:00Z"
    lines = now("--report", "critical", "--site", "FAILS").splitlines()
    assert lines[0] == "FAILS, critical, now: CRITICAL"
    [put] = [line.split() for line in lines if line.split()[:1] == ["put"]]
    assert put[:3] == ["put", "CRITICAL", "yes"]
    assert deciding[-1]["publisher"] == put[-1] == "key:FAILS"


def test_a_metric_whose_last_result_is_too_old_is_missing_since_it_expired(now: Command) -> None:
    document = json.loads(now("--report", "critical", "--site", "SILENT", "--json"))

    [put] = [thing for thing in document["things"] if thing.get("metric_name") == "put"]
    assert (put["status"], put["last_status"]) == ("MISSING", "OK")
    assert put["since"] == "2026-11-14T14:59:00Z"


def test_a_site_in_downtime_shows_the_downtime(now: Command) -> None:
    lines = now("--report", "critical", "--site", "REPAIR").splitlines()

    assert lines[0].endswith("DOWNTIME")
    assert any(line.startswith("downtime ") and "18:00:00Z" in line for line in lines)


def test_results_of_several_vos_are_refused_as_by_a_run(now: Command) -> None:
    error = now("--report", "any", exit_code=78)

    assert "ops, physics" in error
    assert "vo = " in error
