"""sam-publish: publish records, one result, or what a monitoring plugin found."""

from __future__ import annotations

import argparse
import gc

gc.set_threshold(50_000)  # a start makes objects and no garbage: to look for it takes time

from sam_pipeline.publisher.commands.arguments import PROGRAM, subcommands  # noqa: E402
from sam_pipeline.schema.program import command  # noqa: E402

TYPE_CHECKING = False  # `import typing` takes a tenth of the time of a whole call
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

EXAMPLES = """\
examples:
  sam-publish result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE
  sam-publish run --flavour CE -- /usr/lib/nagios/plugins/check_load -w 9 -c 12
  sam-publish send results.txt --broker stomp://msg.example.org --broker stomp://msg2.example.org
  sam-publish spool status

Where to publish stands in the section [publisher] of sam.toml, or in options. What no broker
takes is kept in the spool, and sent by the next call that reaches one.
"""

COMMANDS = {
    "send": "publish records from files or standard input",
    "result": "publish one result",
    "run": "run a monitoring plugin and publish its result",
    "spool": "inspect the spool, repair it, or send what it holds",
    "check": "find every problem of configuration, files and brokers",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.CommandParser(
        prog=PROGRAM,
        description="Publish probe results to the first broker that takes them.",
        epilog=EXAMPLES,
        parents=[command.common_options()],
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = subcommands(parser, "command")
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, options=_late(name, "add_options"))
    return command.run(PROGRAM, parser, argv, lambda args: _late(args.command, "handle")(args))


def _late(name: str, function: str) -> Any:
    """A function of a command's module, which is imported when it is called: most never are."""

    def call(argument: object) -> Any:
        module = __import__(f"sam_pipeline.publisher.commands.{name}", fromlist=[function])
        return getattr(module, function)(argument)

    return call


class _Version(argparse.Action):
    """Looks the version up only when asked: that takes longer than a whole publishing."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{PROGRAM} {version('sam-pipeline')}")
        parser.exit()
