"""What fails leaves the archive as it was, and is completed by the next call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    IO_ERROR,
    NO_PERMISSION,
    OK,
    UNAVAILABLE,
)
from sam_pipeline.sql.archive.manifest import Manifest, newest, read_manifest, versions
from sam_pipeline.sql.archive.record import archive_lock
from sam_pipeline.sql.archive.store import LocalStore, Store
from sam_pipeline.sql.archive.verify import problems_of_files
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.errors import ArchiveConflict, ArchiveDamaged
from tests.services.s3 import S3Server
from tests.support.database.archived import (
    DAY,
    archive,
    fill,
    load,
    newest_day,
    results_of,
    rows_of,
)
from tests.support.database.dialects import only_on
from tests.support.database.sam_db import url_of
from tests.support.small_disk import small_disk

COMMAND = (sys.executable, "-m", "tests.support.database.archive_step")
ROOT = Path(__file__).parents[4]
WITHOUT_ROOTS_RIGHTS = (
    ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
)
"""Modes of files apply to root, too."""


def run(
    environment: Mapping[str, str], *arguments: str, step: int = 0
) -> subprocess.CompletedProcess[str]:
    """`sam-db archive` as a process that dies at a step."""
    return subprocess.run(
        [*COMMAND, str(step), "archive", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def is_intact(store: Store) -> bool:
    """Whether every version has all of its files."""
    return all(
        not list(problems_of_files(store, read_manifest(store, day, version)))
        for day, of_day in versions(store).items()
        for version in of_day
    )


@only_on("sqlite")
def test_killed_at_every_step_there_is_the_old_version_or_the_new_one(
    engine: Engine, local: LocalStore
) -> None:
    fill(engine)
    archive(engine, local)
    late = next(results_of(DAY))
    load(engine, {**late, "timestamp": f"{DAY}T01:02:03Z", "messageId": "late"})
    environment = {"SAM_DATABASE_URL": url_of(engine), "SAM_ARCHIVE_URL": local.url}
    environment["SAM_ARCHIVE_KEEP_VERSIONS"] = "1"
    steps, seen = 0, set()

    while True:
        steps += 1
        # A version is written anew each time, and the one before is deleted.
        done = run(environment, "--day", str(DAY), "--force", step=steps)

        assert is_intact(local)
        seen.add(newest_day(local).rows)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr

    assert steps > 20
    assert seen == {12, 13}
    run(environment, "--day", str(DAY), "--force").check_returncode()
    run(environment, "--clean").check_returncode()
    manifest = newest_day(local)
    assert set(local.names()) == {manifest.name, *(file.name for file in manifest.files)}


@pytest.mark.parametrize("store", ["s3"], indirect=True)
@only_on("postgresql")
def test_killed_while_it_uploads_there_is_the_old_version_or_the_new_one(
    engine: Engine, s3: S3Server, store: Store
) -> None:
    fill(engine)
    environment = {**s3.environment, "SAM_DATABASE_URL": url_of(engine)}
    environment["SAM_ARCHIVE_URL"] = store.url

    for step in (4, 10, 11, 12):  # in the midst of the files, and around the manifest
        done = run(environment, "--day", str(DAY), "--force", step=step)

        assert done.returncode == -signal.SIGKILL, done.stderr
        assert is_intact(store)
    run(environment, "--due", "--verify").check_returncode()
    run(environment, "--clean").check_returncode()
    assert is_intact(store)
    named = {f.name for v in versions(store)[DAY] for f in read_manifest(store, DAY, v).files}
    assert {name for name in store.names() if "results/" in name and str(DAY) in name} <= named


@only_on("sqlite")
def test_a_full_disk_is_reported_with_the_path_and_nothing_is_half_done(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    fill(engine)
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    with small_disk(tmp_path / "small", "size=64k") as disk:
        monkeypatch.setenv("SAM_ARCHIVE_URL", str(disk))
        store = LocalStore(disk)
        filler = disk / "filler"
        codes = []
        for free_kb in (0, 8, 16, 24, 32, 40):
            filler.write_bytes(b"")
            size = (64 - free_kb) * 1024
            try:
                filler.write_bytes(b"x" * size)
            except OSError:
                filler.write_bytes(b"x" * (size - 8192))
            codes.append(main(["archive", "--day", str(DAY)]))
            assert is_intact(store)
            if codes[-1]:
                assert newest(store, DAY) is None
                assert str(disk) in capsys.readouterr().err

        assert IO_ERROR in codes
        filler.unlink()
        assert main(["archive", "--day", str(DAY)]) == OK
        assert newest_day(store).rows == 12
        assert is_intact(store)


@only_on("sqlite")
def test_an_archive_that_is_not_there_or_not_ours_is_reported(
    engine: Engine,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(engine)
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))

    def outcome(url: str, **variables: str) -> tuple[int, str]:
        for name, value in {"SAM_ARCHIVE_URL": url, **variables}.items():
            monkeypatch.setenv(name, value)
        code = main(["archive", "--day", str(DAY)])
        return code, capsys.readouterr().err

    code, error = outcome(str(tmp_path / "unmounted"))
    assert code == UNAVAILABLE
    assert str(tmp_path / "unmounted") in error
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    without_key = {**s3.environment, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    code, error = outcome(s3.new_bucket(), **without_key)
    assert (code, "credentials" in error) == (NO_PERMISSION, True)
    away = {**s3.environment, "SAM_ARCHIVE_ENDPOINT": "http://127.0.0.1:1"}
    code, error = outcome("s3a://archive-1/sam", **away)
    assert code == UNAVAILABLE
    assert "s3a://archive-1/sam" in error


@only_on("sqlite")
def test_a_directory_that_is_not_writable_is_reported(engine: Engine, local: LocalStore) -> None:
    fill(engine)
    root = Path(local.url.removeprefix("file://"))
    root.chmod(0o500)
    environment = {"SAM_DATABASE_URL": url_of(engine), "SAM_ARCHIVE_URL": local.url}

    done = subprocess.run(
        [*WITHOUT_ROOTS_RIGHTS, *COMMAND, "0", "archive", "--day", str(DAY)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )

    assert done.returncode == NO_PERMISSION, done.stderr
    assert str(root) in done.stderr


def lie(store: LocalStore, manifest: Manifest) -> None:
    """Replace a manifest."""
    path = Path(store.url.removeprefix("file://")) / manifest.name
    path.write_bytes(manifest.as_json())


@only_on("sqlite")
def test_a_manifest_that_lies_is_found(engine: Engine, local: LocalStore) -> None:
    fill(engine)
    true = archive(engine, local)
    results, *others = true.files

    def problems(manifest: Manifest) -> str:
        lie(local, manifest)
        return "\n".join(problems_of_files(local, read_manifest(local, DAY, 1)))

    def with_file(**changes: Any) -> Manifest:
        return replace(true, files=(replace(results, **changes), *others))

    assert problems(true) == ""
    assert "has 12 rows, the manifest says 11" in problems(with_file(rows=11))
    assert "bytes, the manifest says 1" in problems(with_file(size_bytes=1))
    assert "SHA-256 is not that of the manifest" in problems(with_file(sha256="0" * 64))
    assert "statuses" in problems(with_file(statuses={**results.statuses, "OK": 4}))
    assert "is missing" in problems(with_file(name="results/day=2026-11-20/v9-000.parquet"))
    assert "names 2 files of topology" in problems(
        replace(true, files=(*true.files, replace(others[0])))
    )
    assert "names 0 files of exclusions" in problems(replace(true, files=true.files[:-1]))
    for name in true.digests:
        lying = replace(true, digests={**true.digests, name: "0" * 16})
        assert f"digest of {name} is {true.digests[name]}, not {'0' * 16}" in problems(lying)
    with pytest.raises(ArchiveDamaged, match=r"is the manifest of .*day=2026-11-21"):
        lie_at = Path(local.url.removeprefix("file://")) / true.name
        lie_at.write_bytes(replace(true, day=DAY.replace(day=21)).as_json())
        read_manifest(local, DAY, 1)
    lie_at.write_bytes(true.as_json().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(ArchiveDamaged, match="format 2, this program reads format 1"):
        read_manifest(local, DAY, 1)
    lie_at.write_bytes(b"{}")
    with pytest.raises(ArchiveDamaged, match="not a manifest"):
        read_manifest(local, DAY, 1)


@only_on("sqlite")
def test_a_damaged_file_is_found_and_replaced_by_a_new_version(
    engine: Engine,
    local: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(engine)
    archive(engine, local)
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    monkeypatch.setenv("SAM_ARCHIVE_URL", local.url)
    assert main(["archive", "--verify"]) == OK
    path = Path(local.source().path(f"results/day={DAY}/v1-000.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    capsys.readouterr()

    assert main(["archive", "--verify", "--json"]) == BAD_DATA

    [document] = json.loads(capsys.readouterr().out)
    assert any("SHA-256" in problem for problem in document["problems"])
    assert main(["archive", "--day", str(DAY), "--force"]) == OK
    assert main(["archive", "--verify"]) == OK
    assert newest_day(local).version == 2


def test_a_file_is_never_overwritten(store: Store) -> None:
    store.create("manifest/day=2026-11-20/v1.json", b"first")

    with pytest.raises(ArchiveConflict, match=r"manifest/day=2026-11-20/v1\.json"):
        store.create("manifest/day=2026-11-20/v1.json", b"second")

    assert store.read("manifest/day=2026-11-20/v1.json") == b"first"
    with store.workspace() as work, pytest.raises(ArchiveConflict):
        (work / "file").write_bytes(b"third")
        store.put(work / "file", "manifest/day=2026-11-20/v1.json")
    assert store.read("manifest/day=2026-11-20/v1.json") == b"first"


def test_of_two_archivers_one_waits(engine: Engine, local: LocalStore) -> None:
    fill(engine)
    environment = {"SAM_DATABASE_URL": url_of(engine), "SAM_ARCHIVE_URL": local.url}
    process = None

    with archive_lock(engine, lambda line: None):
        process = subprocess.Popen(
            [*COMMAND, "0", "archive", "--day", str(DAY)],
            cwd=ROOT,
            env={**os.environ, **environment},
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
