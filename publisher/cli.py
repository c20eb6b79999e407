"""The command line of `sam-publish`."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.publisher.commands.arguments import PROGRAM
from sam_pipeline.schema.program.command import CommandParser, program_parser, run

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
    "publish": {
        "send": ("send", "publish records from files or standard input"),
        "result": ("result", "publish one result"),
        "run": ("run", "run a monitoring plugin and publish its result"),
        "passive": (
            "passive",
            "publish passive results in the formats of Nagios and NRDP",
        ),
    },
    "operate": {
        "spool": ("spool", "inspect, repair or drain the spool"),
        "check": ("check", "report all problems of configuration, files and brokers"),
        "config": (
            "check:add_config_options",
            "show each key of the configuration, and where its value comes from",
        ),
        "key": ("key", "add or show the key that signs messages"),
        "load-test": (
            "load_test",
            "measure a broker: producers, consumers, lag, losses, with plots",
        ),
    },
}
"""The module in `commands` and the help text of each command, in groups."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(make_parser(), argv)


def make_parser() -> CommandParser:
    description = "Publish probe results to the first broker that takes them."
    return program_parser(
        PROGRAM, description, EXAMPLES, "sam_pipeline.publisher.commands", COMMANDS
    )
