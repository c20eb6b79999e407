"""The systemd units: their settings, and that systemd accepts them."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import missing

DEPLOY = Path(__file__).parents[4] / "deploy/systemd"
SERVICES = sorted(DEPLOY.glob("*/*.service"))
WORST_EXPOSURE = 3.0  # of 10: what `systemd-analyze security` says of a service without any limits
UNITS = ("sam-consume.service", "sam-consume-process@.service")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_declares_how_the_daemon_is_run(name: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "consumer" / name)

    service = dict(unit["Service"])
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert (service["WatchdogSec"], service["RestartSec"]) == ("180s", "10s")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["StateDirectory"] == "sam"
    assert service["MemoryMax"] == "300M"
    assert ("--instance %i" in service["ExecStart"]) == (name == UNITS[1])
    assert "#LoadCredential=" in (DEPLOY / "consumer" / name).read_text()


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    text = re.sub(r"/usr/bin/sam-\S+", sys.executable, unit.read_text())
    (tmp_path / unit.name).write_text(text)

    done = analyze("verify", str(tmp_path / unit.name))

    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_accepts_the_port_that_it_opens_for_the_daemon(tmp_path: Path) -> None:
    service = DEPLOY / "consumer/sam-consume.service"
    port = DEPLOY / "consumer/sam-door.socket"
    text = re.sub(r"/usr/bin/sam-\S+", sys.executable, service.read_text())
    (tmp_path / service.name).write_text(text)
    (tmp_path / port.name).write_text(port.read_text())

    done = analyze("verify", str(tmp_path / port.name))

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_a_service_is_hardened(unit: Path) -> None:
    done = analyze(
        "security", "--offline=true", f"--threshold={WORST_EXPOSURE * 10:.0f}", str(unit)
    )

    assert done.returncode == 0, done.stdout.splitlines()[-1]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not shutil.which("systemd-analyze"):
        missing("systemd-analyze", "apt-get install systemd")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)
