"""The .rpm files, installed by rpm on a copy of this machine, beside the packages of dpkg.

The database of rpm knows none of Debian's packages. A package without files stands in for those
that ours require, so that everything else about dependencies is as on a distribution with rpm.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.extended.installed.installation import packages_or_missing
from tests.services import needed
from tests.services.machine import Machine, booted_machine
from tests.services.packages import NAMES
from tests.support.network import own_network
from tests.support.next_packages import REMARK, next_packages
from tests.support.next_packages import VERSION as NEXT

DATABASE = "--dbpath=/var/lib/rpm-of-this-test"
OF_DEBIAN = (
    *("/bin/sh", "/usr/bin/python3", "python3 = 3.11", "python(abi) = 3.11", "systemd = 252"),
    *("glibc = 2.36", "libstdc++ = 12", "java-headless = 1:17"),
)
"""What Debian has of what our packages require."""

STAND_IN = """
Name: stand-in
Version: 1
Release: 1
Summary: the packages of Debian
License: Apache-2.0
BuildArch: noarch
{provides}
%description
Provides what packages of Debian have.
%files
"""
CONFIGURATION = """
[database]
url = "sqlite:////var/lib/sam/sam.db"

[publisher]
brokers = ["spool:///var/spool/sam-in"]
spool = "/var/spool/sam"

[consumer]
name = "site-a"
brokers = ["spool:///var/spool/sam-in"]
"""
RESULT = "--metric org.example.Ping --status OK --host ce01.example.org --flavour CE"
NOBODY = "stomp://127.0.0.1:9"
"""Nothing listens there."""

ROWS = """/usr/bin/python3 -c '
import sqlite3
print(*sqlite3.connect("/var/lib/sam/sam.db").execute("SELECT count(*) FROM metricOutput"))'"""


@dataclass(frozen=True)
class Host:
    machine: Machine

    def rpm(self, arguments: str) -> str:
        return self.machine.succeed(f"rpm {DATABASE} {arguments}")

    def install(self, *paths: str) -> None:
        printed = self.rpm(f"--upgrade --force-debian {' '.join(paths)}")
        assert "scriptlet failed" not in printed, printed

    def property(self, name: str) -> str:
        return self.machine.succeed(f"systemctl show -P {name} sam-consume").strip()

    def rows(self) -> int:
        return int(self.machine.succeed(ROWS).strip(" (),\n"))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Where our three packages are installed, with a configuration for them."""
    stand_in = built_stand_in(tmp_path_factory.mktemp("stand-in"))
    shared = {
        "stand-in": stand_in.parent,
        "release": packages_or_missing().directory,
        "next": next_packages(*NAMES[:2]).directory,
    }
    with own_network(), needed(booted_machine(Path("/"), shared)) as machine:
        host = Host(machine)
        host.install(f"/mnt/stand-in/{stand_in.name}")
        host.install("/mnt/release/*.rpm")
        with (machine.files / "etc/sam/sam.toml").open("a") as configuration:
            configuration.write(CONFIGURATION)
        machine.succeed("install -d -o sam -g sam -m 2770 /var/spool/sam-in")
        yield host


def built_stand_in(directory: Path) -> Path:
    provides = "".join(f"Provides: {capability}\n" for capability in OF_DEBIAN)
    spec = directory / "stand-in.spec"
    spec.write_text(STAND_IN.format(provides=provides))
    command = ["rpmbuild", "-bb", "--quiet", f"--define=_topdir {directory}", str(spec)]
    subprocess.run(command, check=True)
    [package] = directory.rglob("*.rpm")
    return package


def test_the_files_are_those_of_the_packages_and_nothing_is_enabled(host: Host) -> None:
    assert host.rpm(f"--verify --noconfig {' '.join(NAMES)}") == ""
    assert host.machine.succeed("stat -c '%U:%G %a' /var/spool/sam /var/lib/sam*") == (
        "root:sam 2770\nsam:sam 755\nsam-admin:sam 755\nsam-report:sam 755\n"
    )
    assert host.machine.succeed("find /etc/systemd/system -name 'sam-*'") == ""


def test_a_published_result_becomes_a_row_and_the_consumer_starts(host: Host) -> None:
    machine = host.machine
    machine.succeed("runuser -u sam -- sam-db upgrade && runuser -u sam -- sam-db check")
    machine.succeed(f"runuser -u sam -- sam-publish result {RESULT}")
    machine.succeed("runuser -u sam -- sam-consume run --drain")
    assert host.rows() == 1

    machine.succeed("systemctl start sam-consume")
    assert host.property("ActiveState") == "active"
    assert "OK" in machine.succeed("check_sam_consumer")


def test_an_upgrade_restarts_what_runs_and_keeps_the_configuration(host: Host) -> None:
    process = host.property("MainPID")
    host.rpm("--erase sam-pipeline-reports")  # which requires the other two of its release

    host.install("/mnt/next/*.rpm")

    assert host.property("ActiveState") == "active"
    assert host.property("MainPID") != process
    assert host.machine.succeed("sam-consume --version").split()[-1] == NEXT
    assert CONFIGURATION in (host.machine.files / "etc/sam/sam.toml").read_text()
    assert REMARK in (host.machine.files / "etc/sam/sam.toml.rpmnew").read_text()


def test_a_removal_stops_and_keeps_configuration_state_and_spool(host: Host) -> None:
    host.machine.succeed(f"runuser -u sam -- sam-publish result --broker {NOBODY} {RESULT}")
    spooled, rows = host.machine.succeed("find /var/spool/sam -type f"), host.rows()
    assert spooled

    host.rpm("--erase sam-publish sam-pipeline")

    assert host.property("ActiveState") == "inactive"
    assert host.machine.succeed("find /var/spool/sam -type f") == spooled
    assert host.rows() == rows > 0
    assert CONFIGURATION in (host.machine.files / "etc/sam/sam.toml.rpmsave").read_text()
    programs = "/opt/sam /usr/bin/sam-* /usr/lib/systemd/system/sam-*"
    assert host.machine.succeed(f"ls -d {programs} 2>/dev/null || true") == ""
