"""`sam-consume token`: the tokens by which senders over HTTP identify themselves."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from sam_pipeline.consumer.settings.config import examine_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import TOKEN, token_identity
from sam_pipeline.schema.identity.keys import problem_of_name
from sam_pipeline.schema.identity.tokens import load_tokens, make_token, remove_tokens
from sam_pipeline.schema.program.command import (
    NO_INPUT,
    OK,
    USAGE,
    add_action,
    checked_argument,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.wording import plural

DESCRIPTION = """\
Add, list and remove the tokens with which senders identify themselves to listen+https:// or
listen+http://. The file of tokens has only their digests, so a token is printed once.
"""
EXAMPLES = """\
examples:
  sam-consume token add nagios1                add a token to [consumer.door] tokens_file
  sam-consume token add nagios1 --file /etc/sam/tokens
  sam-consume token list
  sam-consume token remove nagios1 3f1c        the one whose digest begins with 3f1c

The daemon reads the file when it starts and on SIGHUP. To replace a token without interruption, add
another one with the same name, and remove the old one once its sender has the new one. Run this as
the account of the service: other accounts can't read the file.
"""
DIGITS = 12
"""The first digits of a digest, which distinguish the tokens of one name."""
NO_FILE = "[consumer.door] has no tokens_file; name a file with --file"
AFTER_RELOAD = "takes effect when the daemon is reloaded"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    add = partial(add_action, parser.add_subparsers(), epilog=EXAMPLES)
    adding = add("add", run_add, "add a token to the file and print it")
    listing = add("list", run_list, "list the names of the tokens")
    removing = add("remove", run_remove, "remove the tokens of a name from the file")
    for action in (adding, removing):
        action.add_argument(
            "name",
            type=checked_argument(partial(problem_of_name, thing=TOKEN)),
            metavar="NAME",
            help="the name of the sender",
        )
    removing.add_argument(
        "digest",
        metavar="DIGEST",
        nargs="?",
        default="",
        help="only the token whose digest, as `list` shows it, begins with this",
    )
    for action in (adding, listing, removing):
        action.add_argument(
            "--file", type=Path, metavar="FILE", help="(default: [consumer.door] tokens_file)"
        )


def run_add(args: argparse.Namespace) -> int:
    path = _file(args)
    token, identity = make_token(path, args.name), token_identity(args.name)
    if args.json:
        print_json({"name": args.name, "file": str(path), "identity": identity, "token": token})
    else:
        print_lines(token)
        print_done(args, f"added {identity} to {path}: it {AFTER_RELOAD}", file=sys.stderr)
    return OK


def run_list(args: argparse.Namespace) -> int:
    path = _named_file(args)
    if path and not path.exists():
        raise ConfigError([f"{path} does not exist: `token add` creates it"], NO_INPUT)
    tokens = sorted(load_tokens(path) if path else (), key=lambda token: (token.name, token.line))
    rows = [(token.name, token.line, token.digest.hex()[:DIGITS]) for token in tokens]
    head = ("name", "line", "sha256")
    if args.json:
        print_json([dict(zip(head, row, strict=True)) for row in rows])
    else:
        empty = f"{path} has no tokens" if path else f"no tokens: {NO_FILE}"
        print_lines(*text_table(head, rows) if rows else [empty])
    return OK


def run_remove(args: argparse.Namespace) -> int:
    path = _file(args)
    count = remove_tokens(path, args.name, args.digest.lower())
    if not count:
        beginning = f" with a digest {args.digest}…" if args.digest else ""
        raise ConfigError([f"{path} has no token {args.name}{beginning}"], USAGE)
    if args.json:
        print_json({"name": args.name, "file": str(path), "removed": count})
    else:
        removed = plural(count, "token")
        print_done(args, f"removed {removed} of {args.name} from {path}: this {AFTER_RELOAD}")
    return OK


def _named_file(args: argparse.Namespace) -> Path | None:
    file: Path | None = args.file or examine_consumer(args).only("door").door.tokens_file
    return file


def _file(args: argparse.Namespace) -> Path:
    if path := _named_file(args):
        return path
    raise ConfigError([NO_FILE], USAGE)
