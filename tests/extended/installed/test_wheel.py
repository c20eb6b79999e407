"""The distribution installed by pip, without any dependency."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("schema", "publisher", "sql", "consumer", "spark_jobs")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our wheel, built from a copy of the files under version control."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", ".names", "pyproject.toml", "README.md", "LICENSE", *ROOMS],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    copy = ["xargs", "-0", "cp", "--parents", "--no-dereference", "-t", str(source)]
    subprocess.run(copy, cwd=ROOT, input=tracked.stdout, check=True)
    build = [*PIP, "wheel", "--no-deps", "--wheel-dir", str(target), str(source)]
    subprocess.run(build, check=True)
    [path] = target.glob("*.whl")
    return str(path)


def output_of(*command: str) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_the_wheel_contains_only_the_five_packages(tmp_path: Path, wheel: str) -> None:
    listing = output_of(sys.executable, "-m", "zipfile", "--list", wheel)

    files = [line.split()[0] for line in listing.splitlines()[1:]]
    packages = {name.split("/")[1] for name in files if ".dist-info/" not in name}
    assert packages == set(ROOMS)
    in_the_wheel = {name.partition("/")[2] for name in files if name.startswith("sam_pipeline/")}
    tracked = output_of("git", "-C", str(ROOT), "ls-files", *ROOMS)
    assert in_the_wheel == set(tracked.splitlines())


def test_an_install_without_dependencies_publishes_and_says_what_is_missing(
    tmp_path: Path, wheel: str
) -> None:
    directory = tmp_path / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory.parent], check=True)
    subprocess.run([*PIP, "--python", directory / "python", "install", wheel], check=True)
    checks = ("check_sam_consumer", "check_sam_publisher")

    for program in ("sam-publish", "sam-consume", "sam-db", "sam-report", *checks):
        assert output_of(str(directory / program), "--version").startswith(f"{program} 0")
        assert "examples:" in output_of(str(directory / program), "--help")
    options = ("--metric", "m", "--status", "OK", "--host", "ce01.example.org", "--flavour", "CE")
    shown = output_of(str(directory / "sam-publish"), "result", *options, "--dry-run")
    assert "metricStatus: OK" in shown
    for program, command in (("sam-db", "check"), ("sam-report", "now"), ("sam-consume", "check")):
        failed = subprocess.run(
            [directory / program, command], capture_output=True, text=True, cwd=tmp_path
        )
        [line] = failed.stderr.splitlines()
        assert failed.returncode == 69, line
        assert "pip install '.[consumer]'" in line
