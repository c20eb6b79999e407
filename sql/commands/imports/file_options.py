"""The options of feeds that consist of several files, and of the period that they cover."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from sam_pipeline.sql.commands.imports.feed_command import (
    DAYS_AHEAD,
    DAYS_BACK,
    run_feed,
    window_argument,
)


def add_file_options(
    command: argparse.ArgumentParser, kind: str, files: Mapping[str, str], metavar: str
) -> None:
    """An option for each content of the files, one of which is `downtimes`, and --window."""
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
        return run_feed(args, kind, given, args.window)

    command.set_defaults(handler=run, usage_error=command.error)
