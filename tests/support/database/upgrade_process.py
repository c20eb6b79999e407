"""`sam-db upgrade` in separate processes, because Alembic keeps its state in globals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

TIMEOUT_S = 120


def start_upgrade(url: str, python_path: str | None = None) -> subprocess.Popen[str]:
    """`sam-db upgrade`, of another program if its `python_path` is given."""
    other = {"PYTHONPATH": python_path} if python_path else {}
    return subprocess.Popen(
        [sys.executable, "-m", "sam_pipeline.sql", "upgrade", "--json"],
        env={**os.environ, **other, "SAM_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    )


def upgrade_at_once(urls: Sequence[str], python_path: str | None = None) -> list[list[str]]:
    """The versions that each process applied."""
    processes = [start_upgrade(url, python_path) for url in urls]
    answers = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    return [json.loads(answer)["applied"] for answer in answers]
