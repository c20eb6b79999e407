"""The command line of `sam-publish`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from sam_pipeline.publisher.commands.arguments import PROGRAM
from sam_pipeline.schema.program.command import CommandParser, common_options, program_parser, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

EXAMPLES = """\
examples:
  sam-publish result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE
  sam-publish run --flavour CE -- /usr/lib/nagios/plugins/check_load -w 9 -c 12
  sam-publish send results.txt --broker stomp://msg.example.org --broker stomp://msg2.example.org
  sam-publish spool status

Brokers are configured in the section [publisher] of sam.toml, or with --broker. Messages that no
broker takes are kept in the spool, and sent by the next call that reaches one.
"""

COMMANDS = {
    "send": "publish records from files or standard input",
    "result": "publish one result",
    "run": "run a monitoring plugin and publish its result",
    "spool": "inspect, repair or drain the spool",
    "check": "report all problems of configuration, files and brokers",
}
"""The help of each module of `commands`."""


def main(argv: Sequence[str] | None = None) -> int:
    common = common_options()
    description = "Publish probe results to the first broker that takes them."
    parser = program_parser(PROGRAM, description, EXAMPLES, common)
    commands: Any = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Command
    )
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, module=name, common=common)
    return run(PROGRAM, parser, argv, lambda args: int(args.handler(args)))


class _Command(CommandParser):
    """A command whose module is imported, and whose options are added, when it is called."""

    def __init__(self, module: str, common: argparse.ArgumentParser, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._module = module
        self._common = common

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        module = import_module(f"sam_pipeline.publisher.commands.{self._module}")
        module.add_options(self)
        self._add_container_actions(self._common)
        self.set_defaults(handler=module.handle)
        return super().parse_known_args(args, namespace)
