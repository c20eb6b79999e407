"""The settings of alarms and metrics in the file: all problems at once."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import load_consumer
from sam_pipeline.schema.errors import ConfigError


def loaded(directory: Path, text: str) -> ConsumerConfig:
    file = directory / "sam.toml"
    file.write_text(f'[consumer]\nbrokers = ["spool:///in"]\n{text}')
    return load_consumer(argparse.Namespace(config=str(file)))


def test_metrics_beyond_this_machine_need_permission(tmp_path: Path) -> None:
    open_to_all = 'metrics_listen = "0.0.0.0:9464"\n'
    with pytest.raises(ConfigError, match="metrics_certificate_file"):
        loaded(tmp_path, open_to_all)

    config = loaded(tmp_path, f"{open_to_all}metrics_insecure = true")

    assert config.metrics_address == ("0.0.0.0", 9464)


def test_by_default_nothing_listens(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").metrics_address is None


def test_a_limit_for_silence_needs_one_subject_and_a_sane_time(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "[[consumer.silence]]\nminutes = 5\n")
    assert "either class or site" in str(caught.value)

    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, '[[consumer.silence]]\nsite = "A"\nminutes = 0\nclas = "x"\n')
    assert "minutes" in str(caught.value) and "class" in str(caught.value)


def test_a_limit_for_silence_is_read(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[[consumer.silence]]\nclass = "metricOutput"\nminutes = 2.5\n')

    [rule] = config.silence
    assert (rule.message_class, rule.site, rule.minutes) == ("metricOutput", "", 2.5)
