"""Arguments of `sam-db prune` and `sam-db partitions`, and the bounds of a prune."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import OK
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.removal.pruning.partitions import coming_days
from sam_pipeline.sql.removal.pruning.request import Bounds, PruneRequest, bounds_of
from sam_pipeline.sql.topology.moments import age_argument
from tests.support.database.sam_db import Output, refusal

TODAY = date(2026, 11, 20)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> str:
    """The URL of a new SQLite database with a schema."""
    url = f"sqlite:///{tmp_path}/sam.db"
    monkeypatch.setenv("SAM_DATABASE_URL", url)
    shutil.copy(empty_database, tmp_path)
    return url


def last_pruned(bounds: Bounds, horizon: date) -> date | None:
    request = PruneRequest(None, bounds, horizon, False, print, print)  # type: ignore[arg-type]
    return request.last_pruned


@pytest.mark.parametrize(("text", "days"), [("1d", 1), ("60d", 60), ("99999d", 99_999)])
def test_an_age_is_whole_days(text: str, days: int) -> None:
    assert age_argument(text) == days


@pytest.mark.parametrize(
    "text", ["0d", "", "60", "-1d", "1.5d", "2w", "12h", "d", "60D", "06d", "٦d", "100000d", "1d "]
)
@pytest.mark.parametrize(
    "option", ["--keep-results", "--keep-details", "--keep-audit", "--keep-dead-letters"]
)
def test_any_other_age_is_refused(option: str, text: str, capsys: Output) -> None:
    assert f"{text!r} is not an age" in refusal(capsys, "prune", f"{option}={text}")


def test_a_prune_without_an_age_is_refused(capsys: Output) -> None:
    assert "--keep-results 400d" in refusal(capsys, "prune")


def test_today_and_the_days_of_the_age_before_it_are_kept() -> None:
    assert bounds_of(TODAY, 400, 60) == Bounds(date(2025, 10, 16), date(2026, 9, 21))


def test_details_are_removed_no_later_than_their_results() -> None:
    ten_days_ago = TODAY - timedelta(days=10)

    assert bounds_of(TODAY, 10, 60) == Bounds(ten_days_ago, ten_days_ago)
    assert bounds_of(TODAY, 10, None) == Bounds(ten_days_ago, ten_days_ago)


def test_only_an_age_of_details_keeps_the_results() -> None:
    assert bounds_of(TODAY, None, 60) == Bounds(None, date(2026, 9, 21))


def test_audit_and_dead_letters_have_ages_of_their_own() -> None:
    bounds = bounds_of(TODAY, 10, None, 1, 2)

    assert (bounds.audit, bounds.dead_letters) == (date(2026, 11, 19), date(2026, 11, 18))
    assert bounds_of(TODAY, 10, 10) == Bounds(bounds.results, bounds.details, None, None)


def test_an_age_may_be_centuries() -> None:
    assert bounds_of(TODAY, 99_999, None).results == date(1753, 2, 5)


@pytest.mark.parametrize(
    ("horizon", "day"),
    [(date(2026, 11, 10), date(2026, 11, 9)), (date(2026, 11, 15), None)],
    ids=["moved by this prune", "moved further by an earlier one"],
)
def test_the_day_before_the_horizon_keeps_its_newest_results(
    horizon: date, day: date | None
) -> None:
    assert last_pruned(bounds_of(TODAY, 10, None), horizon) == day


def test_the_coming_days_begin_today() -> None:
    assert coming_days(TODAY, 2) == [date(2026, 11, 20), date(2026, 11, 21), date(2026, 11, 22)]


@pytest.mark.parametrize("text", ["-1", "367", "x", "", "1.5", "9" * 5000])
def test_more_than_a_year_ahead_is_refused(text: str, capsys: Output) -> None:
    assert "expected 0 to 366" in refusal(capsys, "partitions", f"--ahead={text}")


def test_sqlite_has_no_partitions(database: str, capsys: Output) -> None:
    assert main(["partitions"]) == OK
    assert main(["partitions", "--json"]) == OK

    line, document = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{database}: no partitions")
    assert document == "[]"


def test_an_empty_database_has_nothing_to_prune(database: str, capsys: Output) -> None:
    assert main(["prune", "--keep-results", "400d", "--keep-details", "60d", "--json"]) == OK

    today = datetime.now(UTC).date()
    nothing = {"rows": 0, "partitions": None, "bytes": None}
    assert json.loads(capsys.readouterr().out) == {
        "database": database,
        "dry_run": False,
        "results": {"before": str(today - timedelta(days=400)), **nothing},
        "details": {"before": str(today - timedelta(days=60)), **nothing},
        "audit": {"before": None, **nothing},
        "dead_letters": {"before": None, **nothing},
        "kept_back": [],
        "left": [],
        "not_dropped": [],
    }
