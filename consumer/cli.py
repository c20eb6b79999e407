"""The command line of `sam-consume`."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program.command import CommandParser, program_parser, run

PROGRAM = "sam-consume"

EXAMPLES = """\
examples:
  sam-consume check --connect
  sam-consume run                      the daemon
  sam-consume run --drain              load all waiting messages, then stop (cron, tests)
  sam-consume tap --limit 5            messages that pass, without taking them
  sam-consume status
  sam-consume subscription list
  sam-consume sender list
  sam-consume find MESSAGE-ID
  sam-consume dead-letter list
"""

COMMANDS = {
    "load": {
        "run": ("run", "load messages until stopped"),
        "check": ("check", "report all problems of the configuration and the database"),
        "config": (
            "check:add_config_options",
            "show each key of the configuration, and where its value comes from",
        ),
        "status": ("status", "show state, lag, backlog, rates and counts of the daemon"),
    },
    "look": {
        "tap": ("tap", "print messages that pass, or the rows they would become"),
        "find": ("find", "show where a message is: in a spool, a row or a dead letter"),
    },
    "correct": {
        "dead-letter": (
            "dead_letter",
            "list, edit, replay or drop records that could not be loaded",
        ),
    },
    "senders and brokers": {
        "sender": ("sender", "list which identity sent which records, or suggest a policy"),
        "token": ("token", "add, list or remove the tokens of senders over HTTP"),
        "subscription": ("subscription", "list or delete what brokers store for this consumer"),
    },
}
"""The module in `commands` and the help text of each command, in groups."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(make_parser(), argv)


def make_parser() -> CommandParser:
    description = "Load messages from all configured brokers into the database."
    return program_parser(
        PROGRAM, description, EXAMPLES, "sam_pipeline.consumer.commands", COMMANDS
    )
