"""The source of a build: a clean copy, its version, its time, and the interpreter to build for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PARTS = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md", "deploy", "docs"),
    *("schema", "publisher", "sql", "consumer", "spark_jobs"),
)
VERSION = re.compile(r'^version = "(.*)"$', re.MULTILINE)
CACHE = Path(__file__).parents[2] / ".cache"


@dataclass(frozen=True)
class Source:
    root: Path
    """Named `sam_pipeline`, so that Python can import it from the directory above."""
    version: str
    epoch: int
    """All files have this time, in seconds."""
    python: str

    @classmethod
    def copied(cls, checkout: Path, target: Path, version: str | None, python: str) -> Source:
        """A copy without what programs leave in a checkout, of another version if one is given."""
        target.mkdir()
        for part in PARTS:
            if (checkout / part).is_dir():
                ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(checkout / part, target / part, symlinks=True, ignore=ignore)
            else:
                shutil.copy2(checkout / part, target / part)
        pyproject = target / "pyproject.toml"
        if version:
            replaced = VERSION.sub(f'version = "{version}"', pyproject.read_text(), count=1)
            pyproject.write_text(replaced)
        version = tomllib.loads(pyproject.read_text())["project"]["version"]
        return cls(target, version, epoch(checkout), python)

    @cached_property
    def python_version(self) -> tuple[int, int]:
        script = "import sys; print(*sys.version_info[:2])"
        command = [self.python, "-S", "-c", script]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        major, minor = map(int, printed.split())
        return major, minor


def epoch(checkout: Path) -> int:
    """$SOURCE_DATE_EPOCH, else the newest commit; in an archive of the source, its changelog."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%ct"]
    with_git = shutil.which("git") and (checkout / ".git").exists()
    if with_git:
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return int((checkout / "CHANGELOG.md").stat().st_mtime)
