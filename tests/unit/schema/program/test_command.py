"""The command line that all programs share, the texts that they print, and small tools."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import tomllib
import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.errors import EXTRAS, ClockNotSet, ConfigError, how_to_install
from sam_pipeline.schema.messages.message import chunks
from sam_pipeline.schema.program import command
from sam_pipeline.schema.program.wording import one_line, printable, printable_json
from sam_pipeline.schema.times import NOT_BEFORE, require_set_clock


def parser() -> argparse.ArgumentParser:
    main = command.CommandParser(prog="sam-x")
    main.add_subparsers(dest="what").add_parser("do")
    return main


@pytest.mark.parametrize("argv", [["--json", "do"], ["do", "--json"]])
def test_common_options_work_before_and_after_the_subcommand(argv: list[str]) -> None:
    action = Mock(return_value=0)
    command.run(parser(), argv, action)
    [args] = action.call_args.args
    assert (args.json, args.config, args.verbosity, args.log_format) == (True, None, 0, "text")


USAGE = {
    "dance": "sam-x --help",
    "--colour red do": "--colour belongs after the command: sam-x do --colour …",
    "--config x dp": "did you mean do?",
    "do --color red": "--color: did you mean --colour?",
    "do --colour red plugin -w 9": "write -- first",
}


@pytest.mark.parametrize("argv", USAGE)
def test_a_usage_error_exits_64_and_suggests_what_was_meant(
    argv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = command.CommandParser(prog="sam-x")
    do = main.add_subparsers(metavar="COMMAND").add_parser("do")
    do.advice = "write -- first"
    do.add_argument("--colour", required=True)
    do.add_argument("--size")
    do.add_argument("plugin", nargs="*")

    with pytest.raises(SystemExit) as caught:
        command.run(main, argv.split(), lambda args: 0)

    err = capsys.readouterr().err
    assert caught.value.code == 64
    assert USAGE[argv] in err and len(err.splitlines()) == 2
    # Words after a double dash are not taken for options.
    with pytest.raises(SystemExit):
        command.run(do, ["--", "plugin", "--color"], lambda args: 0)
    assert "mean" not in capsys.readouterr().err


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> command.CommandParser:
    """Two groups of commands; `do` has examples that are wider than a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    main = command.CommandParser(prog="sam-x", description="Do things.")
    actions = main.add_subparsers(metavar="COMMAND")
    actions.groups = {"work": {"do": ()}, "look": {"see": ()}}
    do = command.add_action(actions, "do", None, "do a thing", EPILOG)
    do.add_argument("--since", metavar="TIME", action="append", help="from this time on")
    command.add_action(actions, "see", None, "see a thing")
    return main


EPILOG = """\
examples:
  sam-x do --since yesterday          all that was done since yesterday
  sam-x do --since 2026-11-07T08:00Z --since 2026-11-07T08:01Z

A paragraph whose lines are as long as the source allows is wrapped again, at the width of the
terminal.

where:
  here     a list, with a text that does not fit behind its term in one line
"""


def test_a_bare_program_prints_its_commands_in_groups(
    program: command.CommandParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.run(program, [], lambda args: 0)

    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (64, "")
    assert "work:\n  do   do a thing\n\nlook:\n  see  see a thing\n" in err


@pytest.mark.parametrize("argv", ["do --help", "help do", "do -h --json"])
def test_help_has_the_forms_of_times_and_fits_in_the_terminal(
    program: command.CommandParser, argv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.run(program, argv.split(), lambda args: 0)

    out = capsys.readouterr().out
    assert not caught.value.code
    assert max(map(len, out.splitlines())) <= 60
    assert "from this time on; may be repeated" in " ".join(out.split())
    assert "  TIME " in out and "$SAM_CONFIG" in out
    assert "  # all that was done since yesterday\n  sam-x do --since yesterday\n" in out
    assert "T08:00Z \\\n      --since" in out
    assert "allows is\nwrapped again" in out
    assert "a list, with a text that does not\n   " in out


def test_help_of_a_program_names_environment_files_and_exit_codes(
    program: command.CommandParser,
) -> None:
    text = program.format_help()

    for line in ("SAM_<SECTION>_<KEY> ", "./sam.toml, ~/.config", "78 ", "`sam-x help COMMAND`"):
        assert line in text


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("0.5", 0.5), ("90s", 90), ("1.5m", 90)])
def test_a_duration_is_in_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert command.duration_argument(text) == seconds


@pytest.mark.parametrize("text", ["-1", "", "5y", "inf"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        command.duration_argument(text)


def test_errors_are_lines_and_a_bug_exits_70(capsys: pytest.CaptureFixture[str]) -> None:
    fail = Mock(side_effect=ConfigError(["first", "second"]))
    assert command.run(parser(), ["do"], fail) == 78
    assert capsys.readouterr().err == "sam-x: error: first\nsam-x: error: second\n"
    assert command.run(parser(), ["do"], lambda args: 1 // 0) == 70
    assert "Traceback" not in capsys.readouterr().err


def test_a_value_cannot_end_a_line_of_output(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\nforged\x1b[2J"

    def fail(args: argparse.Namespace) -> int:
        command.print_lines(evil, *command.text_table([evil], [[evil], ["bb"]]))
        command.print_json({evil: evil + "\x9b"})
        raise ConfigError([evil, "second"])

    command.run(parser(), ["do"], fail)

    shown, (out, err) = r"a\nforged\x1b[2J", capsys.readouterr()
    assert out.split("\n")[:5] == [shown, shown, "-" * len(shown), shown, "bb"]
    assert json.loads("\n".join(out.split("\n")[5:])) == {evil: evil + "\x9b"}
    assert all(map(str.isprintable, out.split("\n")))
    assert err.split("\n") == [f"sam-x: error: {shown}", "sam-x: error: second", ""]


SPELT_OUT = {
    "\x1b[31mred": r"\x1b[31mred",
    "a\nb\r\nc": r"a\nb\r\nc",
    "\x00\x7f\x9b\x85\u2028\u2029": r"\x00\x7f\x9b\x85\u2028\u2029",
    "\u202etxt.exe\u2066\udc1b": r"\u202etxt.exe\u2066\udc1b",
    "a\u200bb\ufeff\U000e0041": r"a\u200bb\ufeff\U000e0041",
    **{text: text for text in ("Universität\u00a0: réseau\u202fOK\t", "日本\u3000 👍 \\x1b")},
}


def test_characters_that_a_terminal_obeys_or_hides_are_spelt_out() -> None:
    assert {text: printable(text) for text in SPELT_OUT} == SPELT_OUT
    assert one_line("one\n\n two\u2028three \x1b") == r"one two three \x1b"
    assert one_line("12345", at_most=4) == "123…"


ANY = st.text(st.characters())  # also surrogates


@given(ANY, st.dictionaries(ANY, ANY))
def test_no_text_has_a_character_that_is_not_shown(text: str, document: dict[str, str]) -> None:
    shown = printable(text)

    shown.encode()
    assert {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"} <= (
        {"Cc"} if "\t" in shown else set()
    )
    assert printable(shown) == shown
    as_json = printable_json(json.dumps(document, indent=1, ensure_ascii=False))
    assert json.loads(as_json) == json.loads(json.dumps(document))
    assert all(line == printable(line) for line in as_json.split("\n"))


PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"
IMPORT_NAMES = {"psycopg2-binary": "psycopg2", "pynacl": "nacl", "pyyaml": "yaml"}
"""Of distributions whose names differ from those of their packages."""


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_package_of_an_extra_is_known_and_any_other_module_is_a_bug(extra: str) -> None:
    listed = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"][extra]

    names = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in listed}
    packages = {IMPORT_NAMES.get(name, name) for name in names - {"sam-pipeline"}}

    assert packages | {"py4j"} == {*EXTRAS[extra], "py4j"}
    [line] = how_to_install("pyspark.sql")
    assert line.startswith("pyspark ") and "'.[reports]'" in line
    assert how_to_install("sam_pipeline.sql.nothing") == []


@given(st.lists(st.integers(0, 12)), st.integers(1, 5), st.integers(1, 10))
def test_lists_are_as_large_as_the_limits_allow(
    sizes: list[int], max_items: int, max_bytes: int
) -> None:
    cut = list(chunks(sizes, int, max_items, max_bytes))

    assert [size for chunk in cut for size in chunk] == sizes
    for chunk in cut:
        assert 0 < len(chunk) <= max_items
        assert sum(chunk) <= max_bytes or len(chunk) == 1
    for chunk, (first, *_) in itertools.pairwise(cut):
        is_full = len(chunk) == max_items or sum(chunk) >= max_bytes
        assert is_full or sum(chunk) + first > max_bytes


def test_a_clock_before_the_build_of_the_program_is_refused() -> None:
    with pytest.raises(ClockNotSet, match=r"shows 1970-01-01T00:00:00Z.*NTP"):
        require_set_clock(datetime.fromtimestamp(0, UTC))
    require_set_clock(NOT_BEFORE)
    require_set_clock(NOT_BEFORE + timedelta(days=10_000))
