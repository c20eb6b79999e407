"""The other ways from the sources to the programs: a source distribution, an editable install."""

from __future__ import annotations

import subprocess
from pathlib import Path
from zipfile import ZipFile

from tests.support.distribution import (
    EDITABLE,
    ROOMS,
    SDIST,
    WHEEL,
    built,
    installed,
    output,
    run_all,
    tracked,
    unpacked_archive,
)


def test_a_source_distribution_is_the_checkout_and_gives_the_same_wheel(tmp_path: Path) -> None:
    archive = built(SDIST, unpacked_archive(tmp_path / "source"), tmp_path / "sdist")
    subprocess.run(["tar", "-xf", archive], cwd=archive.parent, check=True)
    [source] = (path for path in archive.parent.iterdir() if path.is_dir())

    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert tracked(*ROOMS, "tests", "docs", "deploy", "Makefile", "CHANGELOG.md") <= files
    assert not any(name.startswith(".names") for name in files)
    wheel = built(WHEEL, source, tmp_path / "wheel")
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {f"sam_pipeline/{name}" for name in tracked(*ROOMS)}
    run_all(installed(wheel, tmp_path / "venv"))


def test_an_editable_install_runs_all_programs_from_the_sources(tmp_path: Path) -> None:
    source = unpacked_archive(tmp_path / "source")

    programs = installed(built(EDITABLE, source, tmp_path / "wheel"), tmp_path / "venv")

    run_all(programs)
    where = "import sam_pipeline.schema.errors as room; print(room.__file__)"
    assert output([programs / "python", "-c", where]) == f"{source}/schema/errors.py\n"
