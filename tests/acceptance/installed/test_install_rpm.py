"""The commands of docs/install.md for rpm packages, as far as rpm can run them without dnf.

Each `dnf` command is run as the `rpm --root` command that dnf would end with, for our own packages.
test_rpm.py is about the packages, their scripts and what they require.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.installed.installation import PAGE, REMOVE_RPM, UPGRADE_DEB, UPGRADE_RPM
from tests.services import ServiceMissing, missing
from tests.services.packages import NAMES, built_packages

(INSTALL,) = PAGE.texts("sh", "rpm packages")
ACTIONS = {
    "install": ("--install",),
    "upgrade": ("--upgrade", "--replacepkgs"),
    "remove": ("--erase",),
}
DISTRIBUTION = {"postgresql-server"}
"""Packages of others."""

NEEDS_A_DISTRIBUTION = {
    "PGSETUP_INITDB_OPTIONS=--auth-host=scram-sha-256 postgresql-setup --initdb",
    "systemctl enable --now postgresql",
}
"""Not tested: no test has a distribution with rpm."""

HERE = ("sam-publish", "sam-pipeline")
"""The packages of a host without reports."""


class Root:
    """An empty root, and a directory with packages for it."""

    def __init__(self, directory: Path) -> None:
        self.files, self.packages = directory / "root", directory / "packages"
        self.files.mkdir()
        self.packages.mkdir()

    def run(self, script: str) -> None:
        for line in script.splitlines():
            program, *arguments = shlex.split(line)
            if program == "dnf":
                action, is_yes, *names = arguments
                assert is_yes == "-y"
                self.rpm(*ACTIONS[action], *self.ours(names))
            elif program == "rm":
                options, *paths = arguments
                subprocess.run(
                    ["rm", options, *(f"{self.files}{path}" for path in paths)], check=True
                )
            else:
                assert line in NEEDS_A_DISTRIBUTION | {*UPGRADE_DEB.splitlines()}, line

    def ours(self, names: list[str]) -> list[str]:
        """Our packages among those that a command names, by file or by name."""
        files = [path.name for name in names for path in self.packages.glob(name)]
        installed = [name for name in names if name in HERE]
        patterns = [name for name in names if name.startswith("./")]
        assert {*names} - {*patterns} <= {*DISTRIBUTION, *NAMES}
        return [*files, *installed]

    def rpm(self, *arguments: str) -> str:
        command = ["rpm", "--root", str(self.files), "--dbpath", "/var/lib/rpm"]
        if "--query" not in arguments:
            command += ["--nodeps", "--noscripts"]
        if not {"--query", "--erase"} & {*arguments}:
            command.append("--force-debian")
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.packages,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    try:
        packages = built_packages(*HERE)
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)
    root = Root(tmp_path_factory.mktemp("rpm"))
    for name in HERE:
        shutil.copy(packages[name, "rpm"], root.packages)
    return root


def test_the_page_installs_upgrades_and_removes_all_packages(root: Root) -> None:
    query = ("--query", "--all", "--queryformat=%{NAME}\\n")
    site = root.files / "etc/sam/conf.d/site.toml"

    root.run(INSTALL)
    assert {*root.rpm(*query).split()} == {*HERE}
    for program in ("sam-publish", "sam-consume", "sam-db", "check_sam_consumer"):
        assert (root.files / "usr/bin" / program).is_symlink() or program == "sam-publish"
    site.write_text("# the site's own")
    for directory in ("lib", "spool"):  # made by the scripts
        (root.files / "var" / directory / "sam").mkdir(parents=True, exist_ok=True)

    root.run(UPGRADE_RPM)
    assert {*root.rpm(*query).split()} == {*HERE}
    assert site.exists()

    remove, delete = REMOVE_RPM.splitlines()
    root.run(remove)
    assert root.rpm(*query) == ""
    assert site.exists()
    root.run(delete)
    left = [path for path in root.files.rglob("*sam*") if "/lib/rpm/" not in str(path)]
    assert left == []


def test_the_worker_node_of_the_page_matches_one_package(root: Root) -> None:
    (worker,) = PAGE.texts("sh", "Worker nodes")

    [command] = [line.partition("# or: ")[2] for line in worker.splitlines() if "dnf" in line]

    [name] = root.ours(shlex.split(command)[3:])
    assert name.startswith("sam-publish-")


def test_the_page_names_all_packages_at_their_removal() -> None:
    assert REMOVE_RPM.splitlines()[0].split()[3:] == [*NAMES]
