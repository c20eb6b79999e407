from __future__ import annotations

from pathlib import Path

from package import Package


def write(package: Package, output: Path) -> Path:
    raise NotImplementedError
