"""`sam-report now`: newest statuses, silent metrics, and whether sites are up, without Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.sql.loading.fold import fold_all
from tests.integration.spark_jobs.conftest import SamReport
from tests.services.postgres import fresh_database
from tests.support.reports.database import DAY, PROFILE, Grid, url_of
from tests.support.reports.published_days import publish

NOW = datetime(DAY.year, DAY.month, DAY.day, 15, tzinfo=UTC)
AGES = (
    ("CE ce1 ping", 300, "OK"),
    ("CE ce1 ping", 10, "CRITICAL"),
    ("CE ce1 submit", 150, "OK"),
    ("SRM srm2 put", 3 * 24 * 60, "OK"),
    ("SRM elsewhere put", 5, "UNKNOWN"),
    # Reports count another VO and a metric that their profile does not name no more than these.
    ("CE ce.up ping", 20, "CRITICAL physics"),
    ("CE ce.up extra", 20, "CRITICAL"),
    ("SRM srm1 put", 1, "OK physics"),
    ("SRM srm.up put", 10, "OK"),
    ("SRM srm.fails put", 300, "OK"),
    ("SRM srm.fails put", 90, "CRITICAL"),
    ("SRM srm.fails put", 10, "CRITICAL"),
    ("SRM srm.silent put", 120, "OK"),  # it expires at this very second
    ("SRM srm.repair put", 10, "CRITICAL"),
)
"""Results by their age in minutes."""
ANY_VO = 'name = "any"\nvalidity_s = 7200\n[flavours.CE]\nmetrics = ["ping"]\n'


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def sites(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grid]:
    """Sites with results from long ago, from now, and none at all."""
    url = f"sqlite:///{tmp_path_factory.mktemp('now')}/sam.db"
    if request.param == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    sites = Grid(url)
    sites.endpoint("SITE-A", "CE", "ce1")
    sites.endpoint("SITE-A", "SRM", "srm1")
    sites.endpoint("SITE-B", "SRM", "srm2")
    sites.endpoint("CLOSED", "CE", "ce9", validTo="2026-02-01T00:00:00Z")
    for site in ("UP", "FAILS", "SILENT", "REPAIR"):
        sites.endpoint(site, "CE", f"ce.{site.lower()}")
        sites.endpoint(site, "SRM", f"srm.{site.lower()}")
        sites.result(f"CE ce.{site.lower()} ping", "14:30", "OK")
        sites.result(f"CE ce.{site.lower()} submit", "14:00", "OK")
    for instance, minutes, sent in AGES:
        status, _, vo = sent.partition(" ")
        at = NOW - timedelta(minutes=minutes)
        who = f"key:{status}"
        sites.result(instance, f"{at:%H:%M}", status, vo=vo or "ops", day=at.date(), publisher=who)
    sites.downtime("14:00", "18:00", siteName="REPAIR", description="new switch")
    fold_all(sites.loader)
    yield sites
    sites.dispose()


@pytest.fixture
def now(sites: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SamReport:
    monkeypatch.setattr(time, "time", NOW.timestamp)
    for name, validity in (("hours", "7200"), ("off", '"off"')):
        text = PROFILE.replace('"off"', validity).replace('"test"', f'"{name}"')
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "any.toml").write_text(ANY_VO)
    sam_report = SamReport(url_of(sites.engine), tmp_path)
    sam_report.configure('[report]\nprofiles = ["hours.toml", "off.toml"]\n')
    return sam_report


def test_an_expected_metric_is_silent_when_its_last_result_is_too_old(now: SamReport) -> None:
    document = now("now", "--site", "SITE-A", "--json").json
    lines = now("now", "--site", "SITE-A").out.splitlines()

    # The result of another VO at srm1 does not count for these profiles.
    assert [
        (metric["metric_name"], metric["reports"], metric["measured_at"] is None)
        for metric in document["silent_instances"]
    ] == [("submit", ["hours"], False), ("put", ["hours", "off"], True)]
    [submit] = [line for line in lines if line.startswith("  CE ce1 submit: ")]
    assert "last OK 2 h 30 min ago" in submit and "by hours)" in submit
    # Without validity a metric is silent after two days.
    of_b = now("now", "--site", "SITE-B", "--json").json
    assert [metric["reports"] for metric in of_b["silent_instances"]] == [["hours", "off"]]


def test_without_configured_profiles_those_of_the_newest_published_days_apply(
    sites: Grid, now: SamReport, tmp_path: Path
) -> None:
    now.configure("")
    assert "no profile in [report]" in now("now", "--site", "SITE-A").out
    for number, metric in ((1, "gone"), (2, "new")):
        text = ANY_VO.replace('"any"', '"old"').replace("ping", metric)
        (tmp_path / "old.toml").write_text(text)
        publish(sites.engine, read_profile(tmp_path / "old.toml"), date(2026, 1, number), {})

    document = now("now", "--site", "SITE-A", "--json").json

    assert [metric["metric_name"] for metric in document["silent_instances"]] == ["new"]


def test_a_report_shows_each_site_once_as_it_folds_it_worst_first(
    now: SamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("reader", "reporter"):
        monkeypatch.setattr("tests.support.commands.ROLES", [("sam-report", role)])
        rows = now("now", "--report", "hours", "--json").json
        own = [row for row in rows if not row["site"].startswith("SITE-")]
        assert [(row["site"], row["status"], row["because"]) for row in own] == [
            ("FAILS", "CRITICAL", ["storage"]),
            ("SILENT", "MISSING", ["storage"]),
            ("REPAIR", "DOWNTIME", ["compute", "storage"]),
            ("UP", "OK", []),
        ]
    [repair] = [row for row in own if row["site"] == "REPAIR"]
    assert (repair["endpoints_in_downtime"], repair["endpoints"]) == (2, 2)
    assert repair["downtime_until"] == "2026-11-14T18:00:00Z"
    [cause] = own[0]["causes"]
    assert (cause["host_name"], cause["metric_name"]) == ("srm.fails", "put")
    assert (cause["since"], own[0]["contact"]) == ("2026-11-14T13:30:00Z", None)
    head, _, _, _, fails, *_ = now("now", "--report", "hours").out.splitlines()
    assert head.endswith("2 CRITICAL, 2 MISSING, 1 DOWNTIME, 1 OK")
    assert "storage (srm.fails put for 1 h 30 min)" in fails


def test_a_report_shows_the_statuses_of_an_earlier_time(now: SamReport, sites: Grid) -> None:
    at = f"{DAY}T13:45:00Z"
    rows = now("now", "--report", "hours", "--at", at, "--json").json
    head = now("now", "--report", "hours", "--at", at).out.splitlines()[0]

    # The site that is silent now had a valid result, and the downtime had not begun.
    statuses = {row["site"]: row["status"] for row in rows if not row["site"].startswith("SITE-")}
    assert statuses == {
        "FAILS": "CRITICAL",
        "SILENT": "MISSING",
        "REPAIR": "MISSING",
        "UP": "MISSING",
    }
    assert head.startswith(f"hours, at {at}: ") and {row["now"] for row in rows} == {at}
    earlier = now("now", "--report", "hours", "--at", f"{DAY}T11:45:00Z", "--json").json
    assert {row["site"]: row["because"] for row in earlier}["FAILS"] == ["compute"]
    for arguments, problem in (
        (("--at", at), "--report"),
        (("--at", "2026-11-14T15:00:01Z", "--report", "hours"), "in the future"),
    ):
        assert problem in now("now", *arguments, code=USAGE).err


def test_a_site_shows_the_functions_endpoints_and_metrics_that_make_it_so(now: SamReport) -> None:
    def of(site: str) -> list[dict[str, object]]:
        things = now("now", "--report", "hours", "--site", site, "--json").json["things"]
        assert isinstance(things, list)
        return things

    deciding = [thing for thing in of("FAILS") if thing["decides"]]
    assert [(thing["level"], thing["status"]) for thing in deciding] == [
        (level, "CRITICAL") for level in ("site", "function", "service", "endpoint", "metric")
    ]
    assert deciding[-1]["since"] == "2026-11-14T13:30:00Z"
    assert deciding[-1]["measured_at"] == "2026-11-14T14:50:00Z"
    assert deciding[-1]["publisher"] == "key:CRITICAL"
    # A metric whose last result is too old is missing since it expired.
    [missing] = [thing for thing in of("SILENT") if thing.get("metric_name") == "put"]
    assert (missing["status"], missing["last_status"]) == ("MISSING", "OK")
    assert missing["since"] == "2026-11-14T15:00:00Z"
    [head, *_] = now("now", "--report", "hours", "--site", "REPAIR").out.splitlines()
    assert head.endswith("DOWNTIME")


def test_results_of_several_vos_are_refused_as_by_a_run(now: SamReport) -> None:
    now.configure('[report]\nprofiles = ["any.toml"]\n')

    error = now("now", "--report", "any", code=78).err

    assert "ops, physics" in error and "vo = " in error


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
