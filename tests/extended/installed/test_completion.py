"""Completion of our commands in bash and fish, by the shells themselves; zsh reads its file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from deploy.manual.__main__ import write
from deploy.manual.parsers import MAKERS, commands, parser_of
from tests.services import missing

FILES = {"results.txt", "rows"}
OFFERED: Mapping[str, set[str]] = {
    "sam-consume dead-letter re": {"replay", "restore"},
    "sam-publish --log-format json resu": {"result"},
    "sam-report export --format ": {"parquet", "csv", "json", "argo", "openmetrics"},
    "sam-consume dead-letter list --reason unk": {"unknown-class", "unknown-format"},
    "sam-publish send --class si": {"siteGroup", "siteContact"},
    "sam-db --config r": FILES,
    "sam-db import records results.txt r": FILES,
    "sam-publish run --flavour CE -- r": FILES,
    "sam-report site --out r": {"rows"},
}
"""What every shell offers after a line, in a directory with a file and a directory."""


Offers = Mapping[str, set[str]]
"""By line."""

SEPARATOR = ">>>"

BASH = f"""
scripts=$1; shift
for line; do
    echo "{SEPARATOR}$line"
    read -ra COMP_WORDS <<<"$line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    source "$scripts/bash/$COMP_WORDS"
    [[ $(complete -p "$COMP_WORDS") =~ -F\\ ([^ ]+) ]]
    "${{BASH_REMATCH[1]}}"
    printf '%s\\n' "${{COMPREPLY[@]}}"
done
"""
FISH = f"""
for script in $argv[1]/fish/*.fish; source $script; end
for line in $argv[2..]
    echo "{SEPARATOR}$line"
    complete -C $line
end
"""


def bash(scripts: Path, lines: Sequence[str], directory: Path) -> Offers:
    return parsed(_run(["bash", "--norc", "-c", BASH, "bash", scripts, *lines], directory))


def fish(scripts: Path, lines: Sequence[str], directory: Path) -> Offers:
    return parsed(_run(["fish", "--no-config", "-c", FISH, scripts, *lines], directory))


SHELLS: Mapping[str, Callable[[Path, Sequence[str], Path], Offers]] = {
    "bash": bash,
    "fish": fish,
}


def parsed(output: str) -> Offers:
    """The words, without the slash of a directory and without descriptions."""
    offers: dict[str, set[str]] = {}
    for block in output.split(SEPARATOR)[1:]:
        line, *words = block.split("\n")
        offers[line] = {word.split("\t")[0].rstrip("/") for word in words if word}
    return offers


def _run(command: Sequence[str | Path], directory: Path) -> str:
    if not shutil.which(command[0]):
        missing(str(command[0]), "make needs")
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "HOME": directory},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


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


def test_shells_offer_commands_choices_files_and_every_option(offers: Offers) -> None:
    wanted = openings()

    assert {line: offers[line] for line in OFFERED} == OFFERED
    assert [line for line in wanted if not wanted[line] <= offers[line]] == []
    assert len(wanted) > 60


def test_zsh_accepts_the_files(scripts: Path) -> None:
    for file in (scripts / "zsh").iterdir():
        _run(["zsh", "-n", file], scripts)
