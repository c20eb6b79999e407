"""Days in the archive: what their files have, restoring and pruning them, and failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq
from sqlalchemy import Engine, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import BAD_DATA, NO_PERMISSION, OK, UNAVAILABLE
from sam_pipeline.sql.archive import results as archive_results
from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER, SORTED_BY, STATUSES
from sam_pipeline.sql.archive.manifest import (
    DOWNTIMES,
    EXCLUSIONS,
    RESULTS,
    TOPOLOGY,
    Manifest,
    clean,
    forget_old_versions,
    read_manifest,
    versions,
)
from sam_pipeline.sql.archive.record import archive_lock, due_days, read_changes
from sam_pipeline.sql.archive.restore import restore_day
from sam_pipeline.sql.archive.store import LocalStore, Store
from sam_pipeline.sql.archive.verify import problem_with_database, problems_of_files
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import ArchiveConflict, ArchiveDamaged
from tests.services.postgres import as_role
from tests.services.s3 import S3Server
from tests.support.database.archived import (
    AFTER,
    BEFORE,
    DAY,
    archive,
    fill,
    is_intact,
    load,
    newest_day,
    results_of,
    rows_of,
)
from tests.support.database.dialects import only_on
from tests.support.database.old_results import horizon, prune_now
from tests.support.database.sam_db import SamDb, url_of
from tests.support.database.sql_rows import downtime, insert, query

TODAY = date(2026, 11, 26)


def stored_results(engine: Engine, day: date) -> list[dict[str, Any]]:
    """The results of a day as the class view has them, by the columns of the file."""
    rows = query(
        engine,
        "SELECT hostName, serviceFlavour, metricName, voName, siteName, gatheredAt, timestamp,"
        " metricStatus, summaryData, performanceData, detailsData, messageId, publisher"
        " FROM metricOutput ORDER BY hostName, timestamp",
    )
    columns = (
        *("host_name", "service_flavour", "metric_name", "vo", "site_hint", "gathered_at"),
        *("measured_at", "status", "summary", "performance_data", "details", "message_id"),
        "publisher",
    )
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return [row for row in found if str(row["measured_at"]).startswith(str(day))]


def test_the_files_have_the_results_of_the_day_in_order(engine: Engine, store: Store) -> None:
    fill(engine)

    manifest = archive(engine, store)

    rows = rows_of(store, manifest, RESULTS)
    expected = stored_results(engine, DAY)
    shown = [
        {
            **{name: row[name] for name in expected[0]},
            "measured_at": f"{row['measured_at']:%Y-%m-%dT%H:%M:%SZ}",
            "status": STATUSES[row["status"]],
        }
        for row in rows
    ]
    assert shown == expected
    assert rows == sorted(rows, key=lambda row: [row[name] for name in SORTED_BY])
    assert manifest.rows == 12
    assert manifest.statuses == dict.fromkeys(STATUSES, 3)


def test_the_other_files_have_what_touches_the_day(engine: Engine, store: Store) -> None:
    fill(engine)

    of_day, after = archive(engine, store), archive(engine, store, AFTER)

    topology = rows_of(store, of_day, TOPOLOGY)
    assert [row["record"] for row in topology] == [ENDPOINT, ENDPOINT, MEMBER]
    assert topology[2]["weight"] == 3
    assert topology[0]["valid_from"] == datetime(2026, 11, 1, tzinfo=UTC)
    [row] = rows_of(store, of_day, DOWNTIMES)
    assert (row["downtime_id"], row["end_s"] - row["start_s"]) == ("D1", 7200)
    assert rows_of(store, after, DOWNTIMES) == []
    # The results of an excluded host are not carried over to the day after.
    assert len(rows_of(store, of_day, EXCLUSIONS)) == 1


def test_large_days_are_sorted_in_runs_and_cut_into_files(
    engine: Engine, local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine)
    whole = archive(engine, local)
    monkeypatch.setattr(archive_results, "RUN_ROWS", 5)
    monkeypatch.setattr(archive_results, "ROWS_PER_GROUP", 3)
    monkeypatch.setattr(archive_results, "ROWS_PER_FILE", 6)

    parts = archive(engine, local)

    assert len(parts.of_kind(RESULTS)) > len(whole.of_kind(RESULTS)) == 1
    path = local.source().path(whole.of_kind(RESULTS)[0].name)
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert (column.compression, column.is_stats_set) == ("ZSTD", True)
    assert rows_of(local, parts, RESULTS) == rows_of(local, whole, RESULTS)
    assert parts.digests == whole.digests
    assert list(problems_of_files(local, parts)) == []


def test_days_are_due_when_they_are_old_enough_or_have_changed(
    engine: Engine, local: LocalStore
) -> None:
    def due(today: date = TODAY) -> list[date]:
        with reading(engine) as connection:
            return due_days(read_changes(connection), local, today, 2)

    fill(engine)
    assert due(AFTER) == []
    assert due() == [BEFORE + timedelta(days=number) for number in range(5)]
    for day in (BEFORE, DAY, AFTER):
        archive(engine, local, day)
    assert not {BEFORE, DAY, AFTER} & {*due()}
    period = {"startTime": f"{BEFORE}T01:00:00Z", "endTime": f"{BEFORE}T02:00:00Z"}
    insert(engine, "downtime", downtime(downtimeId="D2", **period))
    load(engine, {**next(results_of(DAY)), "timestamp": f"{DAY}T01:02:03Z", "messageId": "late"})
    assert due()[:2] == [BEFORE, DAY]

    manifest = archive(engine, local)

    assert (manifest.version, manifest.rows) == (2, 13)
    assert DAY not in due()


def test_a_day_agrees_with_the_database_until_a_result_is_hidden(
    engine: Engine, local: LocalStore
) -> None:
    fill(engine)
    manifest = archive(engine, local)

    def difference() -> str | None:
        with reading(engine) as connection:
            return problem_with_database(connection, manifest, read_changes(connection))

    assert difference() is None
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM metric_result WHERE message_id LIKE 'm-2026-11-20-1'"))
    assert "which has 9 results, not 12" in str(difference())
    with writing(engine) as connection:
        [(identity,)] = connection.execute(text("SELECT database_id FROM database_identity"))
        connection.execute(text("UPDATE database_identity SET database_id = 'another'"))
    try:
        with pytest.raises(ConfigError, match=f"archived from another database, {identity}"):
            archive(engine, local)
    finally:
        with writing(engine) as connection:
            statement = text("UPDATE database_identity SET database_id = :id")
            connection.execute(statement, {"id": identity})


def test_a_new_version_keeps_details_that_were_pruned(engine: Engine, store: Store) -> None:
    fill(engine)
    before = rows_of(store, archive(engine, store), RESULTS)
    prune_now(engine, details=-2)
    assert query(engine, "SELECT 1 FROM metricOutput WHERE detailsData IS NOT NULL") == []

    after = rows_of(store, archive(engine, store), RESULTS)

    assert sum(row["details"] is not None for row in before) == 9
    assert after == before


def test_old_versions_are_deleted_except_those_of_sealed_months_and_clean_what_nobody_names(
    engine: Engine, store: Store
) -> None:
    fill(engine)
    for _ in range(5):
        archive(engine, store)

    removed = forget_old_versions(store, DAY, sealed={(DAY, 2)})

    assert removed == [1, 3]
    everything = store.names()
    assert {name.rpartition("/")[2][:2] for name in everything} == {"v2", "v4", "v5"}
    assert list(problems_of_files(store, newest_day(store))) == []
    orphan = f"results/day={DAY}/v6-000.parquet"
    with store.source().filesystem().open_output_stream(store.source().path(orphan)) as file:
        file.write(b"half")
    assert clean(store) == [orphan]
    assert store.names() == everything
    assert newest_day(store).version == 5


# Restoring and pruning ----------------------------------------------------------------------------

STORED = {
    "metricOutput": "hostName, metricStatus, timestamp, gatheredAt, summaryData, performanceData,"
    " detailsData, siteName, voName, messageId, publisher",
    "serviceEndpoint": "siteName, hostName, serviceFlavour, validFrom, validTo, messageId",
    "siteGroup": "siteName, groupName, weight, validFrom, messageId",
    "downtime": "downtimeId, startTime, endTime, description, messageId",
}
LATE = {**next(results_of(DAY)), "timestamp": f"{DAY}T01:00:00Z", "messageId": "late"}


def stored(engine: Engine) -> Mapping[str, list[Any]]:
    """What the database has, without the ids and times that it gave to the rows."""
    return {
        view: sorted(query(engine, f"SELECT {columns} FROM {view}"), key=str)
        for view, columns in STORED.items()
    }


def test_a_pruned_day_is_restored_as_it_was_and_a_repeat_changes_nothing(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    manifest = archive(engine, local)
    before = stored(engine)
    needless = restore_day(engine, local, manifest)
    assert (stored(engine), set(needless.rows.values())) == (before, {0})
    assert needless.duplicates["metricOutput"] == 12
    prune_now(engine, results=-1)
    assert len(stored(engine)["metricOutput"]) == 15

    first = restore_day(engine, local, manifest)
    after = stored(engine)
    second = restore_day(engine, local, manifest)

    # The newest result of each instance was not pruned, only its details were.
    pruned = [
        row
        for row in before["metricOutput"]
        if str(DAY) in str(row) and "m-2026-11-20-3" not in row
    ]
    assert len(pruned) == 9
    assert [row for row in after["metricOutput"] if row in pruned] == pruned
    assert len(after["metricOutput"]) == 12 + 12
    assert first.rows["metricOutput"] >= 9
    assert second.rows["metricOutput"] == 0
    assert stored(engine) == after


def test_topology_and_downtimes_that_are_missing_are_restored_but_not_what_was_cancelled(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    manifest = archive(engine, local)
    with writing(engine) as connection:
        for table in ("announced_downtime", "endpoint_membership", "site_group_member"):
            connection.execute(text(f"DELETE FROM {table}"))

    restored = restore_day(engine, local, manifest)

    assert restored.rows == {"serviceEndpoint": 2, "siteGroup": 1, "downtime": 1, "metricOutput": 0}
    assert query(engine, "SELECT groupName, weight FROM siteGroup") == [("North", 3)]
    named = "SELECT gridSite FROM serviceEndpoint WHERE gridSite IS NOT NULL"
    assert query(engine, named) == [("GRID",)]
    start = "2026-11-20T08:00:00Z"
    assert query(engine, "SELECT downtimeId, startTime FROM downtime") == [("D1", start)]
    insert(engine, "downtime", downtime(endTime=start, timestamp="2026-11-24T00:00:00Z"))
    restore_day(engine, local, manifest)
    assert query(engine, "SELECT downtime_id FROM report_downtime") == []


def test_prune_keeps_days_that_are_not_archived_or_not_verified(
    engine: Engine, sam_db: SamDb
) -> None:
    age = (datetime.now(UTC).date() - DAY).days - 1  # the day is the last one to prune
    prune = ("prune", "--keep-results", f"{age}d", "--keep-details", f"{age}d")

    def kept_back() -> list[tuple[str, str]]:
        document = sam_db.document(*prune)
        return [(each["day"], each["reason"]) for each in document["kept_back"]]

    assert kept_back() == [(str(day), "is not in the archive") for day in (BEFORE, DAY)]
    assert horizon(engine) == BEFORE
    details = "SELECT count(*) FROM metricOutput WHERE detailsData IS NOT NULL"
    assert query(engine, details) == [(27,)]
    sam_db.document("archive", "write", "--from", str(BEFORE), "--to", str(DAY))
    unverified = "version 1 was not verified, or is damaged"
    assert kept_back() == [(str(BEFORE), unverified), (str(DAY), unverified)]
    sam_db.document("archive", "verify")
    load(engine, LATE)
    listed = sam_db.document("archive", "list")
    facts = [(row["day"], row["versions"], row["state"]) for row in listed]
    assert facts == [(str(BEFORE), [1], "current"), (str(DAY), [1], "changed")]
    assert "2026-11-20  v1            12" in sam_db("archive", "list").out
    assert kept_back() == [(str(DAY), "has changed since version 1")]
    assert horizon(engine) == DAY
    assert len(stored(engine)["metricOutput"]) == 3 + 13 + 12
    sam_db.document("archive", "write", "--day", str(DAY))
    assert kept_back() == [(str(DAY), "version 2 was not verified, or is damaged")]
    sam_db.document("archive", "verify")
    assert kept_back() == []
    assert horizon(engine) == DAY + timedelta(days=1)
    assert len(stored(engine)["metricOutput"]) == 3 + 12
    assert sam_db.document("archive", "list")[0]["state"] == "pruned"


def test_prune_does_nothing_while_the_archive_is_away(engine: Engine, sam_db: SamDb) -> None:
    before = stored(engine)

    away = replace(sam_db, environment={"SAM_ARCHIVE_URL": "/nowhere"})
    assert away("prune", "--keep-results", "1d").code == UNAVAILABLE

    assert stored(engine) == before
    assert horizon(engine) is None


def test_pruned_and_open_days_are_not_archived(engine: Engine, sam_db: SamDb) -> None:
    prune_now(engine, results=-1)
    today = datetime.now(UTC).date()

    for day, reason in ((DAY, "were pruned"), (today, "is not over yet")):
        assert reason in sam_db.refusal("archive", "write", "--day", str(day))


@only_on("postgresql")
def test_an_archiver_can_do_nothing_else(engine: Engine, sam_db: SamDb) -> None:
    archiver = replace(sam_db, url=as_role(sam_db.url, "archiver"))

    for verb in ("write", "verify"):
        assert archiver("archive", verb, "--due").code == OK

    assert archiver("archive", "restore", str(DAY)).code == NO_PERMISSION
    assert archiver("prune", "--keep-results", "9999d").code == NO_PERMISSION


# What fails leaves the archive as it was, and is completed by the next call -----------------------

ROOT = Path(__file__).parents[4]


@contextmanager
def commands(engine: Engine, store: Store, **environment: str) -> Iterator[Callable[..., int]]:
    """`sam-db archive` in processes that die at a step; gives the exit code."""
    place = {"SAM_DATABASE_URL": url_of(engine), "SAM_ARCHIVE_URL": store.url}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.database.archive_step"],
        cwd=ROOT,
        env={**os.environ, **place, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout

        def run(*arguments: str, step: int = 0) -> int:
            print(step, "-q", "archive", *arguments, file=process.stdin, flush=True)
            return int(process.stdout.readline())  # type: ignore[union-attr]

        yield run
        process.stdin.close()


@only_on("sqlite")
def test_killed_at_every_step_there_is_the_old_version_or_the_new_one(
    engine: Engine, local: LocalStore
) -> None:
    fill(engine)
    archive(engine, local)
    load(engine, {**next(results_of(DAY)), "timestamp": f"{DAY}T01:02:03Z", "messageId": "late"})
    steps, seen, code = 0, set(), -1

    with commands(engine, local) as run:
        while code != OK:
            steps += 1
            # A version is written anew each time, and all but the newest two are deleted.
            code = run("write", "--day", str(DAY), "--force", step=steps)

            assert code in (OK, -signal.SIGKILL)
            assert is_intact(local)
            seen.add(newest_day(local).rows)

        assert steps > 20
        assert seen == {12, 13}
        assert [run("write", "--day", str(DAY), "--force"), run("clean")] == [OK, OK]
    kept = versions(local)[DAY]
    manifests = [read_manifest(local, DAY, version) for version in kept]
    files = [file.name for manifest in manifests for file in manifest.files]
    assert len(kept) == 2
    assert sorted(local.names()) == sorted([*files, *(manifest.name for manifest in manifests)])


@pytest.mark.parametrize("store", ["s3"], indirect=True)
@only_on("postgresql")
def test_killed_while_it_uploads_there_is_the_old_version_or_the_new_one(
    engine: Engine, s3: S3Server, store: Store
) -> None:
    fill(engine)
    with commands(engine, store, **s3.environment) as run:
        for step in (4, 10, 11, 12):  # in the midst of the files, and around the manifest
            assert run("write", "--day", str(DAY), "--force", step=step) == -signal.SIGKILL
            assert is_intact(store)
        assert [run("write", "--due"), run("verify", "--due"), run("clean")] == [OK, OK, OK]
    assert is_intact(store)
    named = {f.name for v in versions(store)[DAY] for f in read_manifest(store, DAY, v).files}
    assert {name for name in store.names() if "results/" in name and str(DAY) in name} <= named


@only_on("sqlite")
def test_an_archive_that_is_not_there_or_not_ours_is_reported(
    engine: Engine, s3: S3Server, tmp_path: Path, sam_db: SamDb
) -> None:
    def outcome(url: str, **variables: str) -> tuple[int, str]:
        environment = {"SAM_ARCHIVE_URL": url, "AWS_EC2_METADATA_DISABLED": "true", **variables}
        answer = replace(sam_db, environment=environment)("archive", "write", "--day", str(DAY))
        return answer.code, answer.err

    without_key = {**s3.environment, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    away = {**s3.environment, "SAM_ARCHIVE_ENDPOINT": "http://127.0.0.1:1"}
    for url, variables, code, word in (
        (str(tmp_path / "unmounted"), {}, UNAVAILABLE, "unmounted"),
        (s3.new_bucket(), without_key, NO_PERMISSION, "credentials"),
        ("s3a://archive-1/sam", away, UNAVAILABLE, "s3a://archive-1/sam"),
    ):
        found, error = outcome(url, **variables)
        assert (found, word in error) == (code, True), error


@only_on("sqlite")
def test_a_manifest_that_lies_is_found(engine: Engine, local: LocalStore) -> None:
    fill(engine)
    true = archive(engine, local)
    results, *others = true.files
    path = Path(local.url.removeprefix("file://")) / true.name

    def problems(manifest: Manifest) -> str:
        path.write_bytes(manifest.as_json())
        return "\n".join(problems_of_files(local, read_manifest(local, DAY, 1)))

    def with_file(**changes: Any) -> Manifest:
        return replace(true, files=(replace(results, **changes), *others))

    assert problems(true) == ""
    for lie, problem in (
        (with_file(rows=11), "has 12 rows, the manifest says 11"),
        (with_file(size_bytes=1), "bytes, the manifest says 1"),
        (with_file(sha256="0" * 64), "SHA-256 differs from the manifest"),
        (with_file(statuses={**results.statuses, "OK": 4}), "statuses"),
        *(
            (replace(true, digests={**true.digests, name: "0" * 16}), f"digest of {name} is")
            for name in true.digests
        ),
    ):
        assert problem in problems(lie)
    for content, problem in (
        (replace(true, day=DAY.replace(day=21)).as_json(), "is the manifest of .*day=2026-11-21"),
        (true.as_json().replace(b'"format": 1', b'"format": 2'), "format 2, this program reads"),
        (b"{}", "not a manifest"),
        (b"[" * 200_000, "not a manifest"),
        *(
            (lie.as_json(), "names .*; expected ")
            for lie in (
                with_file(name="results/day=2026-11-20/v9-000.parquet"),
                with_file(name="../../victim.txt"),
                with_file(name="/etc/passwd"),
                with_file(kind="extra"),
                replace(true, files=(*true.files, replace(others[0]))),
                replace(true, files=(*true.files, replace(others[0], kind="x", name="victim"))),
                replace(true, files=true.files[:-1]),
            )
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(ArchiveDamaged, match=problem):
            read_manifest(local, DAY, 1)


@only_on("sqlite")
def test_files_that_a_manifest_has_no_right_to_stay(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    true = archive(engine, local)
    root = Path(local.url.removeprefix("file://"))
    victims = [root / "mine.txt", root.parent / "victim.txt"]
    names = ["mine.txt", "../victim.txt", str(victims[1])]
    for victim in victims:
        victim.write_text("mine")
    more = [replace(true.files[0], name=name, kind="extra") for name in names]
    (root / true.name).write_bytes(replace(true, files=(*true.files, *more)).as_json())
    stray = root / "manifest/day=9999-99-99/v1.json"
    stray.parent.mkdir()
    stray.touch()

    found = sam_db("archive", "verify")
    archived = sam_db("archive", "write", "--day", str(DAY), "--force")
    listed = sam_db("archive", "list")

    assert (found.code, "names" in found.out + found.err) == (BAD_DATA, True)
    assert archived.code == BAD_DATA
    assert listed.code in (OK, BAD_DATA) and "a bug" not in listed.err
    assert all(victim.read_text() == "mine" for victim in victims)


@only_on("sqlite")
def test_a_damaged_file_is_found_and_replaced_by_a_new_version(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    archive(engine, local)
    assert sam_db("archive", "verify").code == OK
    path = Path(local.source().path(f"results/day={DAY}/v1-000.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    found, restored = (
        sam_db("archive", "verify", "--json"),
        sam_db("archive", "restore", DAY.isoformat()),
    )

    [document] = found.json
    assert (found.code, "SHA-256" in str(document["problems"])) == (BAD_DATA, True)
    assert (restored.code, "SHA-256" in restored.err) == (BAD_DATA, True)
    assert sam_db("archive", "write", "--day", str(DAY), "--force").code == OK
    assert sam_db("archive", "verify").code == OK
    assert newest_day(local).version == 2


def test_a_file_is_never_overwritten(store: Store) -> None:
    name = "manifest/day=2026-11-20/v1.json"
    store.create(name, b"first")

    with pytest.raises(ArchiveConflict, match=r"manifest/day=2026-11-20/v1\.json"):
        store.create(name, b"second")
    with store.workspace() as work, pytest.raises(ArchiveConflict):
        (work / "file").write_bytes(b"third")
        store.put(work / "file", name)

    assert store.read(name) == b"first"


def test_of_two_archivers_one_waits(engine: Engine, local: LocalStore, sam_db: SamDb) -> None:
    with archive_lock(engine):
        process = subprocess.Popen(
            [sys.executable, "-m", "sam_pipeline.sql", "archive", "write", "--day", str(DAY)],
            cwd=ROOT,
            env={**os.environ, "SAM_DATABASE_URL": sam_db.url, "SAM_ARCHIVE_URL": local.url},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert "another archiver is at work" in process.stderr.readline()
        archive(engine, local)
        assert process.poll() is None

    assert process.wait(60) == OK
    process.stderr.close()
    # The day was archived while it waited, so there was nothing to do.
    assert versions(local) == {DAY: [1]}
    assert len(rows_of(local, newest_day(local), "results")) == 12
