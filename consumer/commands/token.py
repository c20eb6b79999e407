"""`sam-consume token`: make a token for a sender over HTTP, list the tokens there are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.load import examine_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import TOKEN, token_identity
from sam_pipeline.schema.identity.keys import problem_of_name
from sam_pipeline.schema.identity.tokens import load_tokens, make_token
from sam_pipeline.schema.program.command import (
    OK,
    USAGE,
    CommandParser,
    common_options,
    print_done,
    print_json,
    print_lines,
    text_table,
)

DESCRIPTION = """\
Make a token with which a sender identifies itself to listen+https:// or listen+http://, or list
the names of all tokens. The file of tokens has only their digests, so a token is printed once.
"""
EXAMPLES = """\
examples:
  sam-consume token make nagios1                add a token to [consumer.door] tokens_file
  sam-consume token make nagios1 --file /etc/sam/tokens
  sam-consume token list

The daemon reads the file when it starts and on SIGHUP. To replace a token without interruption,
make another one with the same name, and delete the line of the old one once its sender has the new
one. Run this as the account of the service: other accounts can't read the file.
"""
DIGITS = 12
"""The first digits of a digest, which distinguish the tokens of one name."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=run_token)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    actions: Any = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=CommandParser
    )
    file_option = argparse.ArgumentParser(add_help=False)
    file_option.add_argument(
        "--file", type=Path, metavar="FILE", help="(default: [consumer.door] tokens_file)"
    )

    def add_action(name: str, text: str) -> Any:
        parents = [common_options(), file_option]
        description = f"{text[0].upper()}{text[1:]}."
        return actions.add_parser(
            name, help=text, description=description, epilog=EXAMPLES, parents=parents
        )

    make_action = add_action("make", "add a token to the file and print it")
    make_action.add_argument(
        "name", type=name_argument, metavar="NAME", help="the name of the sender"
    )
    add_action("list", "list the names of the tokens")


def name_argument(text: str) -> str:
    """The argparse `type` of the name of a token."""
    if problem := problem_of_name(text, TOKEN):
        raise argparse.ArgumentTypeError(problem)
    return text


def run_token(args: argparse.Namespace) -> int:
    path = args.file or examine_consumer(args).only("door").door.tokens_file
    if path is None:
        text = "which file? Name it with --file, or set tokens_file in [consumer.door]"
        raise ConfigError([text], USAGE)
    if args.action == "list":
        tokens = sorted(load_tokens(path), key=lambda token: (token.name, token.line))
        rows = [(token.name, token.line, token.digest.hex()[:DIGITS]) for token in tokens]
        head = ("name", "line", "sha256")
        if args.json:
            print_json([dict(zip(head, row, strict=True)) for row in rows])
        else:
            print_lines(*text_table(head, rows))
        return OK
    token, identity = make_token(path, args.name), token_identity(args.name)
    if args.json:
        print_json({"name": args.name, "file": str(path), "identity": identity, "token": token})
    else:
        print_lines(token)
        advice = "the consumer accepts it after its next reload"
        print_done(args, f"added {identity} to {path}: {advice}", file=sys.stderr)
    return OK
