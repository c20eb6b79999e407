"""The commands `sam-db prune` and `sam-db partitions`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Workplace
from tests.support.database.with_schema import with_schema
from tests.support.reports.stored import query

SERVICE = Path(__file__).parents[3] / "deploy/systemd/database/sam-db-prune.service"
HOSTS = 3


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    url = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    with_schema(url).dispose()
    return Workplace(tmp_path, f"spool://{tmp_path / 'spool'}", url).write_configuration()


def day(age: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=age)


def load(workplace: Workplace, *ages: int) -> None:
    """Publish and consume two results of each host on each day."""
    records = [
        f"hostName: ce{host:05}.example.org\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
        f"metricStatus: OK\ntimestamp: {day(age)}T{hour:02}:00:00Z\ndetailsData: at {hour}\nEOT\n"
        for age in ages
        for hour in (1, 2)
        for host in range(HOSTS)
    ]
    workplace.succeed("sam-publish", "send", workplace.write("records.txt", "".join(records)))
    workplace.succeed("sam-consume", "run", "--drain")


def stored(workplace: Workplace, condition: str = "") -> dict[date, int]:
    """The number of results of each day."""
    rows = query(workplace.database, f"SELECT timestamp FROM metricOutput {condition}")
    return dict(Counter(date.fromisoformat(str(row["timestamp"])[:10]) for row in rows))


def test_results_and_details_are_removed_at_their_age_and_counted(workplace: Workplace) -> None:
    load(workplace, 0, 1, 2, 3, 500)
    [command] = re.findall(r"^ExecStart=(.*)$", SERVICE.read_text(), re.MULTILINE)
    program, config, file, *options = shlex.split(command)
    assert (Path(program).name, config, file) == ("sam-db", "--config", "/etc/sam/owner.toml")
    workplace.succeed("sam-db", "--config", workplace.directory / "sam.toml", *options)
    assert set(stored(workplace)) == {day(age) for age in range(4)}
    ages = ("--keep-results", "2d", "--keep-details", "1d")

    answer = workplace.succeed("sam-db", "prune", *ages)

    assert stored(workplace) == {**{day(age): 2 * HOSTS for age in range(3)}, day(3): HOSTS}
    assert set(stored(workplace, "WHERE detailsData IS NOT NULL")) == {day(0), day(1)}
    results, details = answer.out.splitlines()
    assert re.search(rf"results before {day(2)}: (3 rows|1 day, \d+ bytes)$", results)
    assert re.search(rf"details before {day(1)}: (12 rows|2 days, [1-9]\d* bytes)$", details)
    again = workplace.succeed("sam-db", "prune", *ages, "--dry-run", "--json").json
    assert (again["dry_run"], again["results"]["before"]) == (True, str(day(2)))
    assert (again["left"], again["not_dropped"]) == ([], [])


@pytest.mark.parametrize("workplace", ["postgresql"], indirect=True)
def test_partitions_of_the_coming_days_are_created(workplace: Workplace) -> None:
    load(workplace, 1)

    first = workplace.succeed("sam-db", "partitions", "--ahead", "2", "--json").json
    second = workplace.succeed("sam-db", "partitions", "--ahead", "2", "--json").json
    table = workplace.succeed("sam-db", "partitions").out

    assert [row["partition"] for row in first] == [
        f"metric_result{kind}_{day(age):%Y%m%d}"
        for age in (1, 0, -1, -2)
        for kind in ("", "_detail")
    ]
    # The consumer has created those of today and tomorrow, the last day that it would load.
    assert [row["made"] for row in first] == [False] * 6 + [True] * 2
    assert [row["made"] for row in second] == [False] * 8
    assert table.splitlines()[-1].endswith("created now")
