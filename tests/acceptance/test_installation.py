"""A wheel built from an archive of the sources: what is in it, and that all programs run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.distribution import (
    ROOMS,
    WHEEL,
    built,
    installed,
    output,
    run_all,
    tracked,
    unpacked_archive,
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archive")
    return built(WHEEL, unpacked_archive(directory / "source"), directory / "wheel")


def test_the_wheel_of_an_archive_without_links_has_the_five_rooms_and_nothing_else(
    wheel: Path,
) -> None:
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert names == {f"sam_pipeline/{name}" for name in tracked(*ROOMS)}


def test_an_install_without_dependencies_publishes_and_reports_what_is_missing(
    tmp_path: Path, wheel: Path
) -> None:
    programs = installed(wheel, tmp_path / "venv")

    run_all(programs)
    options = ("--metric", "m", "--status", "OK", "--host", "ce01.example.org", "--flavour", "CE")
    shown = output([programs / "sam-publish", "result", *options, "--dry-run"])
    assert "metricStatus: OK" in shown
    for program, command in (("sam-db", "check"), ("sam-report", "now"), ("sam-consume", "check")):
        failed = subprocess.run(
            [programs / program, command], capture_output=True, text=True, cwd=tmp_path
        )
        [line] = failed.stderr.splitlines()
        assert failed.returncode == 69, line
