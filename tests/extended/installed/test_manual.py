"""What is generated from our command lines: man pages, and completion in shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.manual.parsers import MAKERS, commands, parser_of
from tests.services import missing

ROOT = Path(__file__).parents[3]
BUILD_TIME = "1790000000"
BUILD_DAY = "2026-09-21"
PAGES = [*(f"{program}.1" for program in MAKERS), "sam.toml.5"]
COLUMNS = 80


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, as packages have them."""
    for program in ("man", "groff", "mandoc"):
        if not shutil.which(program):
            missing(program, "make needs")
    directory = tmp_path_factory.mktemp("manual")
    command = [sys.executable, "-m", "deploy.manual", str(directory)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": BUILD_TIME}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return directory / "man"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MANWIDTH": str(COLUMNS), "LC_ALL": "C.UTF-8"}
    return subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("page", PAGES)
def test_no_formatter_has_a_warning_and_a_page_fits_in_a_terminal(manual: Path, page: str) -> None:
    path = manual / page
    text = re.sub(".\b", "", run("man", "-E", "UTF-8", "-l", path).stdout)  # without fonts

    assert run("man", "--warnings", "-E", "UTF-8", "-l", path).stderr == ""
    assert run("groff", "-ww", "-mandoc", "-Tutf8", path).stderr == ""
    assert run("mandoc", "-Tlint", "-W", "warning", path).stdout == ""
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    assert BUILD_DAY in text


FILES = {"results.txt", "rows"}
OFFERED: Mapping[str, set[str]] = {
    "sam-consume dead-letter re": {"replay", "restore"},
    "sam-publish --log-format json resu": {"result"},
    "sam-report help ex": {"explain", "export", "exclusion"},
    "sam-report export --format ": {"parquet", "csv", "json", "argo", "openmetrics"},
    "sam-consume dead-letter list --reason unk": {"unknown-class", "unknown-format"},
    "sam-publish send --class si": {"siteGroup", "siteContact"},
    "sam-db --config r": FILES,
    "sam-db import records results.txt r": FILES,
    "sam-publish run --flavour CE -- r": FILES,
    "sam-report pages --out r": {"rows"},
}
"""What every shell offers after a line, in a directory with a file and a directory."""

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


SHELLS = {
    "bash": ["bash", "--norc", "-c", BASH, "bash"],
    "fish": ["fish", "--no-config", "-c", FISH],
    "zsh": ["zsh", "-n"],
}


def said(shell: str, directory: Path, *arguments: str | Path) -> str:
    if not shutil.which(shell):
        missing(shell, "make needs")
    command = [*SHELLS[shell], *arguments]
    environment = {**os.environ, "HOME": str(directory)}
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def option_beginnings() -> Mapping[str, set[str]]:
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


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_shells_offer_commands_choices_files_and_every_option(
    manual: Path, tmp_path: Path, shell: str
) -> None:
    (tmp_path / "results.txt").touch()
    (tmp_path / "rows").mkdir()
    wanted, offers = option_beginnings(), {}

    for block in said(shell, tmp_path, manual.parent, *OFFERED, *wanted).split(SEPARATOR)[1:]:
        line, *words = block.split("\n")  # the slash of a directory and descriptions do not count
        offers[line] = {word.split("\t")[0].rstrip("/") for word in words if word}

    assert {line: offers[line] for line in OFFERED} == OFFERED
    assert [line for line in wanted if not wanted[line] <= offers[line]] == []
    assert len(wanted) > 60


def test_zsh_accepts_the_files(manual: Path) -> None:
    for file in (manual.parent / "zsh").iterdir():
        said("zsh", file.parent, file)
