"""The options of feeds that consist of several files, and of the period that they cover."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from sam_pipeline.sql.commands.imports.feed_command import (
    DAYS_AHEAD,
    DAYS_BACK,
    run_feed,
    window_argument,
)
from sam_pipeline.sql.imports.table import problem_of_format


def add_file_options(
    command: argparse.ArgumentParser,
    kind: str,
    files: Mapping[str, str],
    metavar: str,
    reader_options: Sequence[str] = (),
) -> None:
    """An option for each content of the files, one of which is `downtimes`, and --window.

    `reader_options` are the names of other options of the command, for the reader of the files.
    """
    for name, summary in files.items():
        command.add_argument(
            f"--{name}", type=Path, nargs="+", action="extend", metavar=metavar, help=summary
        )
    command.add_argument(
        "--window",
        type=window_argument,
        metavar="A..B",
        help="days (inclusive) or times that --downtimes covers; missing downtimes are cancelled"
        f" (with --url: from {DAYS_BACK} days ago to {DAYS_AHEAD} days ahead)",
    )

    def run(args: argparse.Namespace) -> int:
        if args.window and not (args.downtimes or args.url):
            args.usage_error("--window needs --downtimes or --url")
        given = {name: paths for name in files if (paths := getattr(args, name))}
        options = {name: getattr(args, name) for name in reader_options}
        return run_feed(args, kind, given, args.window, **options)

    command.set_defaults(handler=run, usage_error=command.error)


def add_time_format(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--time-format",
        type=time_format_argument,
        metavar="FORMAT",
        help="the form of times, such as %%m/%%d/%%Y %%H:%%M, in UTC unless it has %%z; by"
        " default that of records, such as 2026-11-29T13:45:00Z",
    )


def time_format_argument(argument: str) -> str:
    """A format of strptime, with day and time."""
    if problem := problem_of_format(argument):
        raise argparse.ArgumentTypeError(problem)
    return argument
