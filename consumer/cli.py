"""The command line of `sam-consume`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from sam_pipeline.schema.program.command import CommandParser, common_options, program_parser, run

PROGRAM = "sam-consume"

EXAMPLES = """\
examples:
  sam-consume check --connect
  sam-consume run                      the daemon
  sam-consume run --drain              load all waiting messages, then stop (cron, tests)
  sam-consume status
  sam-consume dead-letter list
"""

COMMANDS = {
    "run": ("run", "load messages until stopped"),
    "check": ("check", "report all problems of the configuration and the database"),
    "status": ("status", "show state, lag, backlog, rates and counts of the daemon"),
    "dead-letter": ("dead_letters", "list, edit, replay or drop records that could not be loaded"),
}
"""The module in `commands` and the help text of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv, lambda args: int(args.handler(args)))


def make_parser() -> CommandParser:
    common = common_options()
    description = "Load messages from all configured brokers into the database."
    parser = program_parser(PROGRAM, description, EXAMPLES, common)
    commands: Any = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Command)
    for name, (module, text) in COMMANDS.items():
        description = f"{text[0].upper()}{text[1:]}."
        commands.add_parser(
            name, parents=[common], help=text, description=description, module=module
        )
    return parser


class _Command(CommandParser):
    """Imports the module of a command when it is called, so that a relay never needs SQLAlchemy."""

    def __init__(self, module: str = "", **keywords: Any) -> None:
        super().__init__(**keywords)
        self._module = module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._module:
            import_module(f"sam_pipeline.consumer.commands.{self._module}").add_options(self)
            self._module = ""
        return super().parse_known_args(args, namespace)
