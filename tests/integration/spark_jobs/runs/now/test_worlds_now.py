"""Random small worlds: `now --report` at the end of a day is where the report's timeline ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.levels import FUNCTION, SITE
from sam_pipeline.spark_jobs.runs.now.folding import ThingNow
from sam_pipeline.spark_jobs.runs.now.report_now import read_sites_folded
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.fold import fold_all
from tests.oracle.batch import Facts, drawn_batch
from tests.oracle.databases import DIALECTS, Databases
from tests.oracle.spark import Arrangement, fill
from tests.services.postgres import PostgresServer, fresh_database
from tests.worlds.model import midnight
from tests.worlds.profile_file import to_toml

SEED = 7
BATCHES, SIZE = 8, 15

Statuses = dict[tuple[str, ...], str]
"""level, then names, to the status"""


@pytest.fixture(scope="module")
def databases(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return Databases(tmp_path_factory.mktemp("worlds"), fresh_database(postgres))


@pytest.mark.parametrize("number", range(BATCHES))
def test_now_is_the_last_status_of_the_report_at_the_end_of_each_day(
    databases: Databases, tmp_path: Path, number: int
) -> None:
    """At the end of the first days there are later results, which must not count."""
    batch = drawn_batch(SEED, number, SIZE)
    facts = batch.oracle_facts()

    with databases.empty(DIALECTS[number % 2]) as engine:
        fill(engine, batch, Arrangement(shuffled=number))
        fold_all(engine)
        for report, day in ((p, day) for p in batch.profiles for day in batch.setting.days):
            path = tmp_path / "profile.toml"
            path.write_text(to_toml(report))
            profile = read_profile(path)
            end = min(midnight(day) + timedelta(days=1), batch.setting.until)
            last_second = int(end.timestamp()) - 1
            with reading(engine) as connection:
                sites = read_sites_folded(connection, profile, last_second)
            statuses = {
                (thing.level, *thing.names): thing.status
                for site in sites
                for thing in things(site.thing)
            }

            # The report also has timelines of flavours that serve no function, and so no site.
            assert statuses == {
                (level, *names): status
                for (level, *names), status in last_statuses(facts, report.name, str(day)).items()
                if level in (SITE, FUNCTION) or profile.functions_of(names[1])
            }


def things(thing: ThingNow) -> Iterator[ThingNow]:
    yield thing
    for child in thing.children:
        yield from things(child)


def last_statuses(of_worlds: Mapping[str, Facts], report: str, day: str) -> Statuses:
    """The last statuses of the oracle's timelines."""
    return {
        (kind[1].removesuffix("s"), *kind[4:]): timeline[-1][2]  # type: ignore[index]
        for facts in of_worlds.values()
        for kind, timeline in facts.items()
        if kind[0] == "timeline" and kind[2:4] == (report, day)
    }
