"""`sam-report exclusion add` prints what it affects, and warns of a name that nothing has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from sam_pipeline.schema.program.command import OK
from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.sql.loading.fold import fold_all
from tests.services.postgres import fresh_database
from tests.support.reports.database import DAY, Grid
from tests.support.reports.runs import url_of

Add = Callable[..., tuple[list[str], str]]
WHEN = ("--start", f"{DAY}T10:00Z", "--end", f"{DAY}T12:00Z", "--reason", "x")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def grid(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grid]:
    """Two sites with three results each between 10:00 and 12:00, and one later."""
    if request.param == "sqlite":
        sites = Grid(f"sqlite:///{tmp_path_factory.mktemp('effect')}/sam.db")
    else:
        sites = Grid(fresh_database(request.getfixturevalue("postgres")))
    for site, host in (("OAK", "ce1"), ("PINE", "ce2")):
        sites.endpoint(site, "CE", host)
        for metric, time in (("ping", "10:00"), ("ping", "11:00"), ("put", "11:30")):
            sites.result(f"CE {host} {metric}", time, "OK", monitoringHost=f"nagios.{host}")
        sites.result(f"CE {host} ping", "12:00", "OK", monitoringHost=f"nagios.{host}")
    fold_all(sites.loader)
    yield sites
    sites.dispose()


@pytest.fixture
def add(grid: Grid, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Add:
    """`sam-report exclusion add`; returns the lines printed, and the warnings."""
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(grid.engine))

    def command(*selectors: str) -> tuple[list[str], str]:
        assert main(["exclusion", "add", *selectors, *WHEN]) == OK
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err

    return command


@pytest.mark.parametrize(
    ("selectors", "results"),
    [
        (("--metric", "ping"), "4 results"),
        (("--metric", "ping", "--site", "OAK"), "2 results"),
        (("--metric", "put", "--host", "ce1", "--flavour", "CE"), "1 result"),
        (("--group", "PINE"), "3 results"),
        # The second of the end is excluded as well.
        (("--monitoring-host", "nagios.ce1"), "4 results"),
    ],
)
def test_an_exclusion_prints_how_many_results_it_affects_and_the_days_due(
    add: Add, selectors: tuple[str, ...], results: str
) -> None:
    lines, warnings = add(*selectors)

    assert lines[0].isdigit()
    assert lines[1] == f"affects {results}"
    assert lines[2].startswith(f"due: {DAY}")
    assert warnings == ""


@pytest.mark.parametrize(
    ("selectors", "wrong", "nearest"),
    [
        (("--metric", "pingg"), "metric pingg", "ping?"),
        (("--group", "PINNE"), "site PINNE", "PINE?"),
        (("--metric", "ping", "--site", "OKA"), "site OKA", "OAK?"),
        (("--metric", "ping", "--site", "OAK", "--host", "ce11"), "host ce11", "ce1?"),
        (("--metric", "ping", "--flavour", "CEE"), "flavour CEE", "CE?"),
        (("--monitoring-host", "nagios.ce3"), "monitoring host nagios.ce3", "nagios.ce"),
    ],
)
def test_an_exclusion_of_an_unknown_name_is_added_with_the_nearest_known_one(
    add: Add, selectors: tuple[str, ...], wrong: str, nearest: str
) -> None:
    lines, warnings = add(*selectors)

    assert lines[0].isdigit()
    assert lines[1] == "affects 0 results"
    assert wrong in warnings
    assert f"did you mean {nearest}" in warnings


def test_the_effect_of_an_exclusion_is_in_its_json(add: Add) -> None:
    lines, _ = add("--group", "OAK", "--json")

    document = json.loads("\n".join(lines))
    assert document["results"] == 3
    assert str(DAY) in document["due_days"]
