"""What fails leaves the archive as it was, and is completed by the next call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import BAD_DATA, NO_PERMISSION, OK, UNAVAILABLE
from sam_pipeline.sql.archive.manifest import Manifest, read_manifest, versions
from sam_pipeline.sql.archive.record import archive_lock
from sam_pipeline.sql.archive.store import LocalStore, Store
from sam_pipeline.sql.archive.verify import problems_of_files
from sam_pipeline.sql.errors import ArchiveConflict, ArchiveDamaged
from tests.services.s3 import S3Server
from tests.support.database.archived import (
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
from tests.support.database.sam_db import SamDb, url_of

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

    with commands(engine, local, SAM_ARCHIVE_KEEP_VERSIONS="1") as run:
        while code != OK:
            steps += 1
            # A version is written anew each time, and the one before is deleted.
            code = run("--day", str(DAY), "--force", step=steps)

            assert code in (OK, -signal.SIGKILL)
            assert is_intact(local)
            seen.add(newest_day(local).rows)

        assert steps > 20
        assert seen == {12, 13}
        assert [run("--day", str(DAY), "--force"), run("--clean")] == [OK, OK]
    manifest = newest_day(local)
    assert set(local.names()) == {manifest.name, *(file.name for file in manifest.files)}


@pytest.mark.parametrize("store", ["s3"], indirect=True)
@only_on("postgresql")
def test_killed_while_it_uploads_there_is_the_old_version_or_the_new_one(
    engine: Engine, s3: S3Server, store: Store
) -> None:
    fill(engine)
    with commands(engine, store, **s3.environment) as run:
        for step in (4, 10, 11, 12):  # in the midst of the files, and around the manifest
            assert run("--day", str(DAY), "--force", step=step) == -signal.SIGKILL
            assert is_intact(store)
        assert [run("--due", "--verify"), run("--clean")] == [OK, OK]
    assert is_intact(store)
    named = {f.name for v in versions(store)[DAY] for f in read_manifest(store, DAY, v).files}
    assert {name for name in store.names() if "results/" in name and str(DAY) in name} <= named


@only_on("sqlite")
def test_an_archive_that_is_not_there_or_not_ours_is_reported(
    engine: Engine, s3: S3Server, tmp_path: Path, sam_db: SamDb
) -> None:
    def outcome(url: str, **variables: str) -> tuple[int, str]:
        environment = {"SAM_ARCHIVE_URL": url, "AWS_EC2_METADATA_DISABLED": "true", **variables}
        answer = replace(sam_db, environment=environment)("archive", "--day", str(DAY))
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
        (with_file(sha256="0" * 64), "SHA-256 is not that of the manifest"),
        (with_file(statuses={**results.statuses, "OK": 4}), "statuses"),
        (with_file(name="results/day=2026-11-20/v9-000.parquet"), "is missing"),
        (replace(true, files=(*true.files, replace(others[0]))), "names 2 files of topology"),
        (replace(true, files=true.files[:-1]), "names 0 files of exclusions"),
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
    ):
        path.write_bytes(content)
        with pytest.raises(ArchiveDamaged, match=problem):
            read_manifest(local, DAY, 1)


@only_on("sqlite")
def test_a_damaged_file_is_found_and_replaced_by_a_new_version(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    archive(engine, local)
    assert sam_db("archive", "--verify").code == OK
    path = Path(local.source().path(f"results/day={DAY}/v1-000.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    found, restored = (
        sam_db("archive", "--verify", "--json"),
        sam_db("archive", "--restore", DAY.isoformat()),
    )

    [document] = found.json
    assert (found.code, "SHA-256" in str(document["problems"])) == (BAD_DATA, True)
    assert (restored.code, "SHA-256" in restored.err) == (BAD_DATA, True)
    assert sam_db("archive", "--day", str(DAY), "--force").code == OK
    assert sam_db("archive", "--verify").code == OK
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
    with archive_lock(engine, lambda line: None):
        process = subprocess.Popen(
            [sys.executable, "-m", "sam_pipeline.sql", "archive", "--day", str(DAY)],
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
