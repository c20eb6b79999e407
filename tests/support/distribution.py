"""Builds and installs the distribution from an archive of the sources, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.services import missing
from tests.support.page import ROOT

ROOMS = ("schema", "publisher", "sql", "consumer", "spark_jobs")
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
WHEEL, EDITABLE, SDIST = "wheel", "editable", "sdist"

# The hooks that pip calls: pip itself would download setuptools.
_BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")


def tracked(*paths: str) -> set[str]:
    """The names of the files under version control, in these folders."""
    if not (ROOT / ".git").exists():
        missing("a git checkout", "git clone")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", *paths]
    return set(subprocess.check_output(command, text=True).split("\0")) - {""}


def unpacked_archive(target: Path) -> Path:
    """The files under version control as an archive without links has them: in a link's place is
    a file with its target, as in a clone without `core.symlinks`.
    """
    for name in tracked():
        source, path = ROOT / name, target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            path.write_text(str(source.readlink()))
        elif source.exists():  # else it is deleted, but not committed yet
            shutil.copy(source, path)
    return target


def built(kind: str, source: Path, target: Path) -> Path:
    """The wheel, the wheel of an editable install, or the source distribution of these sources."""
    target.mkdir()
    command = [sys.executable, "-c", _BUILD, f"build_{kind}", str(target)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    [path] = target.iterdir()
    return path


def installed(wheel: Path, directory: Path) -> Path:
    """The directory of the programs, in a new environment without their dependencies."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    programs = directory / "bin"
    subprocess.run([*_PIP, "--python", programs / "python", "install", wheel], check=True)
    return programs


def output(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout


def run_all(programs: Path) -> None:
    """Fail unless every program runs and prints its help."""
    for program in PROGRAMS:
        assert output([programs / program, "--version"]).startswith(f"{program} 0")
        assert "examples:" in output([programs / program, "--help"])
