"""`sam-report warm-up`, and runs with its archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.services.process import descendants, wait_until
from tests.support.commands import Workplace, embedded
from tests.support.reports.database import DAY, PROFILE, Grid

RUN = ("sam-report", "run", "-q", "--profile", "test.toml", "--day", str(DAY), "--master", "local")
TIMEOUT_S = 180


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """With a cache of its own, which is empty."""
    own_cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    workplace = replace(embedded(tmp_path), environment=own_cache)
    workplace.write("test.toml", PROFILE)
    grid = Grid(workplace.database)
    grid.endpoint("A", "SRM", "se.A")
    grid.result("SRM se.A put", "12:00", "OK")
    grid.dispose()
    return workplace


def archive_of(workplace: Workplace) -> Path:
    return workplace.directory / "cache" / "sam" / "spark.jsa"


def test_a_run_uses_the_archive_of_warm_up(workplace: Workplace) -> None:
    archive = archive_of(workplace)

    made = workplace.succeed("sam-report", "warm-up")
    with workplace.running(*RUN) as process:
        wait_until(lambda: is_mapped(archive, descendants(process.pid)), TIMEOUT_S)
        code = process.wait(TIMEOUT_S)

    assert made.out.startswith(f"{archive}: ")
    assert made.err == ""
    assert [path.name for path in archive.parent.iterdir()] == ["spark.jsa"]
    assert code == 0
    assert (workplace.directory / "running.log").read_text() == ""


def is_mapped(file: Path, pids: list[int]) -> bool:
    for pid in pids:
        try:
            if str(file) in Path(f"/proc/{pid}/maps").read_text():
                return True
        except OSError:  # it has just ended
            continue
    return False


def test_an_archive_that_does_not_fit_is_ignored(workplace: Workplace) -> None:
    archive_of(workplace).parent.mkdir(parents=True)
    archive_of(workplace).write_bytes(b"of another Java" * 1000)

    ran = workplace.succeed(*RUN)

    assert (ran.out, ran.err) == ("", "")
    assert archive_of(workplace).exists()
