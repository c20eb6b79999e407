"""What docs/publisher.md tells a probe author to type works, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sam_pipeline.publisher.commands.arguments import build_parser
from sam_pipeline.publisher.settings.config import PublisherConfig, load_config
from sam_pipeline.schema.net.broker_url import SCHEMES
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.commands import PROGRAMS, Workplace

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "publisher.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"(?<![\w`-])--[a-z][a-z-]+")


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(PAGE) if name == language]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def place(tmp_path: Path, broker: FakeBroker) -> Workplace:
    return Workplace(
        tmp_path,
        broker=broker.url,
        database="",
        environment={"SAM_PUBLISHER_BROKERS": broker.url},
    )


def run(place: Workplace, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=place.directory,
        env=place.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_command_succeeds(place: Workplace, broker: FakeBroker) -> None:
    done = run(place, "bash", "-c", "\n".join(["set -euo pipefail", *blocks("sh")]))

    assert done.returncode == 0, done.stdout + done.stderr
    assert [frame.headers["recordCount"] for frame in broker.taken] == ["1"] * 4
    assert "LOAD OK" in done.stdout


def test_without_a_broker_the_results_are_spooled_where_the_page_says(place: Workplace) -> None:
    alone = replace(place, environment={})
    commands = [block for block in blocks("sh") if "sam-publish check" not in block]

    done = run(alone, "bash", "-c", "\n".join(["set -euo pipefail", *commands]))

    assert done.returncode == 0, done.stdout + done.stderr
    assert DirectoryQueue(place.directory / "shared-spool").count() == 1
    assert place.spooled("state/sam/spool") == 3


def test_the_script_publishes(place: Workplace, broker: FakeBroker) -> None:
    (script,) = blocks("python")

    done = run(place, sys.executable, "-c", script)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 messages are confirmed, 0 are in the spool\n"
    assert len(broker.taken) == 4


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_configuration_is_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r'file = "([\w.-]+)"', text):
        (tmp_path / name).write_text("secret\n")
        (tmp_path / name).chmod(0o600)
    text = text.replace("certificate_file", "# certificate_file")  # a real one is asked for
    (tmp_path / "sam.toml").write_text(text)
    monkeypatch.setenv("SAM_CONFIG", str(tmp_path / "sam.toml"))

    config = load_config(None, {})

    assert config.brokers


def test_every_option_and_kind_of_broker_it_names_is_there() -> None:
    helps = "".join(
        subprocess.run(
            [str(PROGRAMS / "sam-publish"), *command.split(), "--help"],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        ).stdout
        for command in ("result", "send", "run", "spool drain", "check")
    )
    named = set(OPTION.findall(PAGE.replace("`", " ")))
    schemes = {scheme for scheme in SCHEMES if f"{scheme}://" in PAGE}

    assert build_parser().prog in PAGE
    assert {option for option in named if option not in helps} == set()
    assert {"spool", "stomp", "stomp+ssl", "ams+https"} <= schemes


def test_the_example_for_production_shows_every_key_and_no_other() -> None:
    example = (ROOT / "deploy" / "sam.toml").read_text()
    section = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", example, flags=re.MULTILINE))["publisher"]
    metadata = PublisherConfig.metadata()
    keys = {metadata.get(name, {}).get("key", name) for name in PublisherConfig._fields} - {None}

    assert set(section) == keys
