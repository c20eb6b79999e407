"""Completion of our commands in bash, zsh and fish, by the shells themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.manual.__main__ import write
from deploy.manual.parsers import MAKERS, commands, parser_of
from tests.acceptance.installed.shells import SHELLS, Offers

FILES = {"results.txt", "rows"}
OFFERED: Mapping[str, set[str]] = {
    "sam-consume dead-": {"dead-letter"},
    "sam-consume dead-letter re": {"replay", "restore"},
    "sam-publish --log-format json resu": {"result"},
    "sam-db --config results.txt cl": {"classes"},
    "sam-report exclusion add --mon": {"--monitoring-host"},
    "check_sam_consumer --warning-sil": {
        f"--warning-silent-{name}" for name in ("classes", "sites", "probes")
    },
    "sam-report export --format ": {"parquet", "csv", "json", "argo", "openmetrics"},
    "sam-consume dead-letter list --state ": {"open", "replayed", "dropped", "any"},
    "sam-consume dead-letter list --reason unk": {"unknown-class", "unknown-format"},
    "sam-publish send --class si": {"siteGroup", "siteContact"},
    "sam-publish result --status ": {"OK", "WARNING", "CRITICAL", "UNKNOWN"},
    "sam-publish config ": {"show"},
    "sam-db --config r": FILES,
    "sam-publish send r": FILES,
    "sam-db import records results.txt r": FILES,
    "sam-publish run --flavour CE -- r": FILES,
    "sam-report site --out r": {"rows"},
    "sam-consume find --spool r": {"rows"},
}
"""What every shell offers after a line, in a directory with a file and a directory."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("completion")
    write(directory, MAKERS)
    return directory


@pytest.fixture(scope="module", params=SHELLS)
def offers(
    request: pytest.FixtureRequest, scripts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Offers:
    """What a shell offers after each line."""
    directory = tmp_path_factory.mktemp("home")
    (directory / "results.txt").touch()
    (directory / "rows").mkdir()
    return SHELLS[request.param](scripts, [*OFFERED, *openings()], directory)


def openings() -> Mapping[str, set[str]]:
    """The beginning of an option after each command, and its options that begin so."""
    return {
        f"{command.prog} --": {
            option
            for action in command._actions
            for option in action.option_strings
            if option.startswith("--")
        }
        for program in MAKERS
        for parser in [parser_of(program)]
        for command in [parser, *commands(parser)]
    }


@pytest.mark.parametrize("line", OFFERED)
def test_shells_offer_commands_options_choices_and_files(offers: Offers, line: str) -> None:
    assert offers[line] == OFFERED[line]


def test_shells_offer_every_option_of_every_command(offers: Offers) -> None:
    wanted = openings()

    assert {
        line: wanted[line] - offers[line] for line in wanted if wanted[line] - offers[line]
    } == {}
    assert len(wanted) > 60
