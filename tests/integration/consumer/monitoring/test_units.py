"""The systemd units: their settings, and that systemd accepts them."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import missing

DEPLOY = Path(__file__).parents[4] / "deploy"
UNITS = ("sam-consume.service", "sam-consume@.service")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_declares_how_the_daemon_is_run(name: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / name)

    service = dict(unit["Service"])
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert (service["WatchdogSec"], service["RestartSec"]) == ("180s", "10s")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["StateDirectory"] == "sam"
    assert service["MemoryMax"] == "300M"
    assert ("--instance %i" in service["ExecStart"]) == (name == UNITS[1])
    assert "#LoadCredential=" in (DEPLOY / name).read_text()


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        missing("systemd-analyze", "apt-get install systemd")
    text = (DEPLOY / name).read_text().replace("/opt/sam/bin/sam-consume", sys.executable)
    (tmp_path / name).write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
