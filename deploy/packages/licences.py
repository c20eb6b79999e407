"""The copyright file of a package: our licence, and those of everything it contains."""

from __future__ import annotations

from package import Package


def copyright_of(package: Package) -> str:
    return "Apache-2.0, see /usr/share/common-licenses/Apache-2.0\n"
