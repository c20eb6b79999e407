"""The pages about installation: their shell commands, and what each way leads to."""

from __future__ import annotations

import re
import tomllib

from tests.services import ServiceMissing, missing
from tests.services.machine import Machine
from tests.services.packages import Packages, built_packages
from tests.support.page import ROOT, Page

PAGE = Page("docs/install.md")
SECTIONS = ("Configuration", "Database", "Broker", "Services")
"""What follows once the programs are installed, up to the first result."""

INSTALL_CHECKOUT, UPGRADE_CHECKOUT, REMOVE_CHECKOUT = Page("docs/packages.md").texts(
    "sh", "A checkout"
)
(UPGRADE,) = Page("docs/upgrade.md").texts("sh", "Packages of another release")
(REMOVE,) = Page("docs/upgrade.md").texts("sh", "Remove everything")

PACKAGES = tomllib.loads((ROOT / "deploy/packages/packages.toml").read_text())
PROGRAMS = {name for facts in PACKAGES.values() for name in facts.get("programs", "").split()}
UNITS = {path.name for path in ROOT.glob("deploy/systemd/*/sam-*") if path.is_file()}
ACCOUNTS = ("sam", "sam-admin", "sam-report")
EXAMPLE = (ROOT / "deploy/sam.toml").read_text()


def packages_or_missing(*names: str) -> Packages:
    """The packages of these names, or of all; the test is skipped, or fails, without them."""
    try:
        return built_packages(*names)
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)


def check_installed(machine: Machine) -> None:
    """Fail unless programs, units, accounts, directories and configuration are as promised."""
    versions = {machine.succeed(f"{name} --version").split()[-1] for name in PROGRAMS}
    assert len(versions) == 1
    listed = machine.succeed("systemctl list-unit-files --no-legend 'sam-*'").splitlines()
    states = dict(line.split()[:2] for line in listed)
    assert {*states} == UNITS
    assert {*states.values()} <= {"static", "disabled"}
    for account in ACCOUNTS:
        assert machine.succeed(f"id -gn {account}") == "sam\n"
        home = machine.succeed(f"getent passwd {account}").split(":")[5]
        assert home == f"/var/lib/{account}"
    directories = "stat --format '%n %a %U %G' /var/lib/sam* /var/spool/sam /etc/sam/conf.d"
    assert machine.succeed(directories).splitlines() == [
        *(f"/var/lib/{account} 755 {account} sam" for account in ACCOUNTS),
        "/var/spool/sam 2770 root sam",
        "/etc/sam/conf.d 755 root root",
    ]
    commented = re.sub(r"^(?=[^#\n])", "# ", EXAMPLE, flags=re.MULTILINE)
    assert machine.succeed("cat /etc/sam/sam.toml") == commented


def check_removed(machine: Machine) -> None:
    """Fail if a file, a unit or an account is left."""
    files = "/etc/sam /opt/sam /var/{lib,cache}/sam* /var/spool/sam /usr/bin/*sam[-_]*"
    assert machine.succeed(f"ls -d {files} 2>/dev/null || true") == ""
    assert "0 unit files" in machine.shell("systemctl list-unit-files 'sam-*'").stdout
    for account in ("sam", "sam-report", "sam-admin"):  # a checkout shares the host's other ones
        assert machine.shell(f"getent passwd {account}").returncode == 2
    assert machine.shell("getent group sam").returncode == 2
