"""The script that makes `make demo` and `make test` work on a bare machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "services" / "apt-need.sh"


def need(path: Path, *needs: str) -> subprocess.CompletedProcess[str]:
    """Run it where only `path` has programs, and none of them is apt-get."""
    for program in ("id", "sh"):
        link = path / program
        if not link.exists():
            link.symlink_to(str(shutil.which(program)))
    return subprocess.run(
        [path / "sh", SCRIPT, *needs], env={"PATH": str(path)}, capture_output=True, text=True
    )


def test_nothing_missing_is_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "15").mkdir()
    (tmp_path / "15" / "postgres").touch()

    done = need(tmp_path, "id=coreutils", f"{tmp_path}/*/postgres=postgresql")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_be_installed_is_named(tmp_path: Path) -> None:
    done = need(tmp_path, "id=coreutils", "java=default-jre-headless", f"{tmp_path}/*/x=postgresql")

    assert done.returncode == 1
    assert done.stderr.endswith("sudo apt-get install default-jre-headless postgresql\n")
