"""A package that is ready to be written: its files, and what packages.toml says about it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from source import Source

HERE = Path(__file__).parent
PRE_RELEASE = re.compile(r"\.?(a|b|rc|dev)(?=\d)")


@dataclass(frozen=True)
class Package:
    name: str
    source: Source
    root: Path
    """Its files, as they will be installed below /."""

    @property
    def version(self) -> str:
        """The version of both formats, where 1.0~rc1 is older than 1.0."""
        return PRE_RELEASE.sub(r"~\1", self.source.version)

    @property
    def facts(self) -> dict[str, str]:
        """The keys of packages.toml, with our version and Python's inserted."""
        major, minor = self.source.python_version
        described = tomllib.loads((HERE / "packages.toml").read_text())
        values = {
            "version": self.version,
            "interpreter": self.source.python,
            "python": f"{major}.{minor}",
            "next_python": f"{major}.{minor + 1}",
        }
        facts = {**described["all"], **described[self.name]}
        return {key: Template(value).substitute(values) for key, value in facts.items()}

    @property
    def programs(self) -> list[str]:
        return self.facts["programs"].split()

    def paths(self) -> Iterator[Path]:
        """All files and directories, sorted."""
        return iter(sorted(self.root.rglob("*")))

    def configuration(self) -> list[str]:
        """The files that an upgrade leaves as the site has changed them."""
        files = sorted((self.root / "etc").rglob("*"))
        return [f"/{path.relative_to(self.root)}" for path in files if path.is_file()]

    def units(self, *suffixes: str) -> list[str]:
        """Its units of these kinds, templates as patterns of their instances."""
        found = sorted((self.root / "usr/lib/systemd/system").glob("sam-*"))
        names = [path.name for path in found if path.is_file() and path.suffix in suffixes]
        return [name.replace("@.", "@*.") for name in names]

    def script(self, name: str, systemctl: str) -> str:
        """A script of scripts/, for this package."""
        units = self.units(".service", ".socket", ".timer")
        values = {
            "@NAME@": self.name,
            "@SYSTEMCTL@": systemctl,
            "@RESTARTED@": quoted(self.units(".service", ".timer")),
            "@STOPPED@": quoted(units),
            "@SPOOL@": self.facts["spool"],
            "@PURGED@": self.facts["purged"],
            "@LINKS@": " ".join(f"/etc/systemd/system/*.wants/{unit}" for unit in units),
        }
        script = (HERE / "scripts" / f"{name}.sh").read_text()
        for key, value in values.items():
            script = script.replace(key, value)
        return script

    def set_times_and_modes(self) -> None:
        """Everything gets the time of the source, and can be read by all."""
        for path in [*self.paths(), self.root]:
            if not path.is_symlink():
                is_program = path.is_dir() or (
                    path.stat().st_mode & 0o100 and ".so" not in path.name
                )
                path.chmod(0o755 if is_program else 0o644)
            os.utime(path, (self.source.epoch, self.source.epoch), follow_symlinks=False)


def quoted(units: list[str]) -> str:
    return " ".join(f"'{unit}'" for unit in units)
