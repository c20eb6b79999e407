"""The consumer checks its clock first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer.cli import main
from sam_pipeline.schema import times
from sam_pipeline.schema.program.command import UNAVAILABLE


def test_run_ends_before_it_takes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sam.toml"
    config.write_text('[consumer]\nbrokers = ["spool:///nowhere"]\n')
    monkeypatch.setattr(times, "NOT_BEFORE", datetime(9000, 1, 1, tzinfo=UTC))

    code = main(["--config", str(config), "run", "--drain"])

    assert code == UNAVAILABLE
    assert "set the clock" in capsys.readouterr().err
