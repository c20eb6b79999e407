"""A log that cannot be written does not change the exit code of a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_program_whose_log_is_full_keeps_its_exit_code(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sam_pipeline.consumer",
        "--config",
        str(tmp_path / "none.toml"),
        "check",
    ]

    with open("/dev/full", "w") as full:
        code = subprocess.run(command, stderr=full, timeout=60).returncode

    assert code == 78
