"""The check for a clock that was never set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.consumer.cli import main
from sam_pipeline.consumer.errors import ClockNotSet
from sam_pipeline.consumer.process import clock
from sam_pipeline.consumer.process.clock import NOT_BEFORE, require_set_clock
from sam_pipeline.schema.program.command import UNAVAILABLE


def test_a_clock_before_the_build_of_the_program_is_refused() -> None:
    with pytest.raises(ClockNotSet, match=r"shows 1970-01-01T00:00:00Z.*NTP"):
        require_set_clock(datetime.fromtimestamp(0, UTC))


def test_any_later_time_is_accepted() -> None:
    require_set_clock(NOT_BEFORE)
    require_set_clock(NOT_BEFORE + timedelta(days=10_000))


def test_run_ends_before_it_takes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sam.toml"
    config.write_text('[consumer]\nbrokers = ["spool:///nowhere"]\n')
    monkeypatch.setattr(clock, "NOT_BEFORE", datetime(9000, 1, 1, tzinfo=UTC))

    code = main(["--config", str(config), "run", "--drain"])

    assert code == UNAVAILABLE
    assert "set the clock" in capsys.readouterr().err
