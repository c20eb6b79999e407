"""The command line that all programs share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import date

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program import command
from tests.support.builders import NOW


def parser() -> argparse.ArgumentParser:
    common = command.common_options()
    main = command.CommandParser(prog="sam-x", parents=[common])
    main.add_subparsers(dest="what", required=True).add_parser("do", parents=[common])
    return main


@pytest.mark.parametrize("argv", [["--json", "do"], ["do", "--json"]])
def test_common_options_work_before_and_after_the_subcommand(argv: list[str]) -> None:
    parsed: list[argparse.Namespace] = []

    command.run("sam-x", parser(), argv, lambda args: parsed.append(args) or 0)

    assert parsed[0].json is True
    assert (parsed[0].config, parsed[0].verbosity, parsed[0].log_format) == (None, 0, "text")


def test_usage_errors_exit_64(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.run("sam-x", parser(), ["dance"], lambda args: 0)

    assert caught.value.code == 64
    assert "sam-x --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--colour red do", "--colour belongs after the command: sam-x do --colour …"),
        ("--colour=red", "--colour belongs after the command: sam-x COMMAND --colour …"),
        ("--verson do --colour red", "--verson: did you mean --version?"),
        ("--config x dp", "did you mean do?"),
        ("do --color red", "--color: did you mean --colour?"),
        ("do --colour red --sise=7", "--sise: did you mean --size?"),
        ("do plugin -w 9", "write -- first"),
    ],
)
def test_a_usage_error_says_what_was_probably_meant(
    argv: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = command.program_parser("sam-x", "", "", command.common_options())
    do = main.add_subparsers(metavar="COMMAND", required=True).add_parser("do")
    do.advice = "write -- first"
    do.add_argument("--colour", required=True)
    do.add_argument("--size")
    do.add_argument("plugin", nargs="*")
    argv = argv.replace("do plugin", "do --colour red plugin")

    with pytest.raises(SystemExit) as caught:
        command.run("sam-x", main, argv.split(), lambda args: 0)

    first, _ = capsys.readouterr().err.splitlines()
    assert caught.value.code == 64
    assert message in first


def test_words_after_a_double_dash_are_not_taken_for_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = command.CommandParser(prog="sam-x")
    parser.advice = "write -- first"
    parser.add_argument("--colour", required=True)
    parser.add_argument("plugin", nargs="*")

    with pytest.raises(SystemExit):
        command.run("sam-x", parser, ["--", "plugin", "--color"], lambda args: 0)

    assert "mean" not in capsys.readouterr().err


def test_an_error_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise ConfigError(["first", "second"])

    code = command.run("sam-x", parser(), ["do"], fail)

    assert code == 78
    assert capsys.readouterr().err == "sam-x: error: first\nsam-x: error: second\n"


def test_a_bug_exits_70_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.run("sam-x", parser(), ["do"], lambda args: 1 // 0)

    assert code == 70
    assert "Traceback" not in capsys.readouterr().err


def test_a_table_has_numbers_on_the_right_and_empty_cells_for_none() -> None:
    table = command.text_table(["site", "value"], [["A", 99.5], ["LONGER", None]])

    assert table == ["site    value", "------  -----", "A        99.5", "LONGER"]


def test_a_value_can_not_end_a_line_of_output(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\nforged\x1b[2J"

    def fail(args: argparse.Namespace) -> int:
        command.print_lines(evil, *command.text_table([evil], [[evil], ["bb"]]))
        command.print_json({evil: evil + "\x9b"})
        raise ConfigError([evil, "second"])

    command.run("sam-x", parser(), ["do"], fail)

    shown, (out, err) = r"a\nforged\x1b[2J", capsys.readouterr()
    assert out.split("\n")[:5] == [shown, shown, "-" * len(shown), shown, "bb"]
    assert json.loads("\n".join(out.split("\n")[5:])) == {evil: evil + "\x9b"}
    assert all(map(str.isprintable, out.split("\n")))
    assert err.split("\n") == [f"sam-x: error: {shown}", "sam-x: error: second", ""]


def test_times_and_dates_have_a_json_form() -> None:
    assert json.loads(command.to_json({"at": NOW, "day": NOW.date()})) == {
        "at": "2026-11-20T12:30:00Z",
        "day": "2026-11-20",
    }


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "²", "10", "9" * 5000, ""])
def test_an_argument_that_is_not_a_whole_number_in_its_range_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"whole number \(expected 1 to 9\)"):
        command.whole_number(1, 9)(text)


def test_a_whole_number_may_have_no_upper_limit() -> None:
    assert command.whole_number()("123456789012") == 123456789012
    with pytest.raises(argparse.ArgumentTypeError, match="expected 1 or more"):
        command.whole_number()(str(2**63))


def test_a_day_is_an_argument() -> None:
    assert command.day_argument("2026-11-01") == date(2026, 11, 1)


@pytest.mark.parametrize(
    "text", ["2026-11-31", "20261120", "2026-11-20Z", "٢٠٢٦-11-20", "2026-W01-1", ""]
)
def test_an_argument_that_is_not_a_day_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a date"):
        command.day_argument(text)


@pytest.mark.parametrize("items", [[], [1], [{"a": [1, {"b": "c\nd"}]}, {"at": NOW}]])
def test_an_array_that_is_printed_item_by_item_is_the_same_document(
    items: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    command.print_json_array(iter(items))

    assert capsys.readouterr().out == f"{command.to_json(items)}\n"


def test_an_array_ends_as_json_even_if_an_error_follows_an_item(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ConfigError(["x"])

    with pytest.raises(ConfigError):
        command.print_json_array(failing())

    assert json.loads(capsys.readouterr().out) == [1]
