"""Our packages, built once for each state of the sources: `built_packages("sam-publish")`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.broker import CACHE

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "deploy" / "packages" / "build.py"
NAMES = ("sam-publish", "sam-pipeline", "sam-pipeline-reports")
FORMATS = {"deb": "dpkg-deb", "rpm": "rpmbuild"}
"""The formats, and the program that writes each."""

PARTS = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md", "deploy"),
    *("schema", "publisher", "sql", "consumer", "spark_jobs"),
)
UNUSED_S = 86_400
"""Packages of other states of the sources are kept for a day."""


@dataclass(frozen=True)
class Packages:
    """Paths by name and format, such as `packages["sam-publish", "deb"]`."""

    directory: Path

    def __getitem__(self, key: tuple[str, str]) -> Path:
        name, suffix = key
        [path] = self.directory.glob(f"{name}[_-][0-9]*.{suffix}")
        return path

    def __contains__(self, key: tuple[str, str]) -> bool:
        name, suffix = key
        return any(self.directory.glob(f"{name}[_-][0-9]*.{suffix}"))


def built_packages(*names: str, source: Path = ROOT) -> Packages:
    """The packages of these names (all by default) in both formats, also of another source."""
    for program in FORMATS.values():
        if shutil.which(program) is None:
            raise ServiceMissing(program, "make needs")
    CACHE.mkdir(exist_ok=True)
    packages = Packages(CACHE / f"packages-{state_of(source)}")
    with open(CACHE / "packages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [
            name
            for name in names or NAMES
            if not all((name, suffix) in packages for suffix in FORMATS)
        ]
        if missing:
            remove_unused()
            command = [sys.executable, str(BUILD), f"--source={source}"]
            command += [f"--package={name}" for name in missing]
            output = packages.directory.with_name("packages.new")
            shutil.rmtree(output, ignore_errors=True)
            subprocess.run([*command, str(output)], check=True)
            packages.directory.mkdir(exist_ok=True)
            for path in output.iterdir():
                path.rename(packages.directory / path.name)
    return packages


def state_of(source: Path) -> str:
    """A digest of all files that are in the packages, or build them."""
    digest = hashlib.sha256()
    # The manual is made from tables of docs/.
    for top in [*(source / part for part in PARTS), *sorted((source / "docs").glob("*.py"))]:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(source)} {path.stat().st_mode}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def remove_unused() -> None:
    for directory in CACHE.glob("packages-*"):
        if time.time() - directory.stat().st_mtime > UNUSED_S:
            shutil.rmtree(directory)


if __name__ == "__main__":
    print(built_packages().directory)
