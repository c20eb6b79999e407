"""The parsers of all programs, with the options of all their subcommands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping

from sam_pipeline.consumer import cli as consumer
from sam_pipeline.consumer.commands import nagios as consumer_plugin
from sam_pipeline.publisher import cli as publisher
from sam_pipeline.publisher.commands import nagios as publisher_plugin
from sam_pipeline.schema.program.command import LazyCommand, common_options
from sam_pipeline.spark_jobs import cli as reports
from sam_pipeline.sql import cli as database

MAKERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {
    "sam-publish": publisher.make_parser,
    "check_sam_publisher": publisher_plugin.make_parser,
    "sam-consume": consumer.make_parser,
    "check_sam_consumer": consumer_plugin.make_parser,
    "sam-db": database.make_parser,
    "sam-report": reports.make_parser,
}
COMMON = {action.dest for action in common_options()._actions}
"""The options that every program and subcommand has, by `dest`."""


def parser_of(program: str) -> argparse.ArgumentParser:
    """The parser, complete: those of subcommands usually import their modules when they run."""
    parser = MAKERS[program]()
    for command in commands(parser):
        if isinstance(command, LazyCommand):
            command.load_options()
    return parser


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the subcommands, and of theirs, each one before its own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands(command)
