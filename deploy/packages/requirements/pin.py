"""Writes the files beside it: the newest releases that pyproject.toml permits, with their hashes.

    pip install uv
    python deploy/packages/requirements/pin.py

The hashes are those of all files of a release, so the packages can be built for other machines and
other versions of Python. sam-pipeline-reports.txt only has what sam-pipeline lacks.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
REQUIREMENT = re.compile(r"^(?=\S)", re.MULTILINE)  # its hashes are indented
UV = ("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11")
LINES = ("--generate-hashes", "--no-annotate", "--no-header")


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = pinned("\n".join([*project["build-system"]["requires"], "wheel"]), "-")
    pipeline = pinned("", *extras("consumer", "door", "sign"))
    everything = pinned("", *extras("consumer", "door", "sign", "reports"))
    for name, pins in (
        ("build", build),
        ("sam-pipeline", pipeline),
        ("sam-pipeline-reports", [pin for pin in everything if pin not in pipeline]),
    ):
        (HERE / f"{name}.txt").write_text("".join(pins))


def extras(*names: str) -> list[str]:
    return ["pyproject.toml", *(f"--extra={name}" for name in names)]


def pinned(standard_input: str, *arguments: str) -> list[str]:
    """The requirements with what they require, each with its hashes."""
    command = [*UV, *LINES, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, input=standard_input, stdout=subprocess.PIPE, check=True, text=True
    )
    return [pin for pin in REQUIREMENT.split(done.stdout) if pin]


if __name__ == "__main__":
    main()
