"""The command `sam-report`, with the database of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from tests.support.reports.runs import url_of

SamReport = Callable[..., str]
"""Runs a command that must succeed, and returns its standard output."""


@pytest.fixture
def sam_report(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> SamReport:
    config = tmp_path / "sam.toml"
    config.write_text(f'[database]\nurl = "{url_of(engine)}"\n')
    config.chmod(0o600)

    def run(*arguments: str) -> str:
        assert main([*arguments, "--config", str(config)]) == 0
        return capsys.readouterr().out

    return run
