"""Deadlines of commands that neither slow input nor a slow reader of the output extends."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.publisher.commands import run as run_command
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message


def test_run_does_not_wait_for_a_reader_that_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_command, "READER_PATIENCE_S", 0.1)
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "w") as output:
        pass_on = run_command.pass_on_to(output, "output")
        started = time.monotonic()

        for _ in range(50):
            pass_on(b"x" * 1_000_000)

        assert time.monotonic() - started < 3

        os.set_blocking(reading, False)
        assert 0 < len(os.read(reading, 1_000_000)) < 1_000_000


def test_time_spent_reading_does_not_count_against_the_deadline(tmp_path: Path) -> None:
    args = argparse.Namespace(dry_run=False, json=False, verbosity=0)
    lines: list[str] = []

    def read_slowly() -> Iterator[Message]:
        time.sleep(0.3)
        yield metric_message()

    with FakeBroker() as broker:
        config = PublisherConfig(brokers=(broker.url,), timeout_s=0.25, spool=tmp_path / "spool")
        code = publish_and_report([read_slowly()], config, args, print_line=lines.append)

    assert code == 0
    assert lines[0].startswith("published ")
