"""`sam-publish key`: add a key for signatures, show its public part."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from sam_pipeline.publisher.commands.arguments import PROGRAM, config_of
from sam_pipeline.publisher.errors import PublishUsage
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import key_identity
from sam_pipeline.schema.identity.keys import SUFFIX, Signer, make_key, problem_of_name
from sam_pipeline.schema.identity.signature import load_signer
from sam_pipeline.schema.program.command import (
    OK,
    add_action,
    checked_argument,
    print_done,
    print_json,
    print_lines,
)

DESCRIPTION = """\
Write a new key that signs messages (Ed25519), or show one. Both print the two lines by which the
policy of a consumer knows the key: its identity, and its public part, which is not secret.
"""
EXAMPLES = f"""\
examples:
  {PROGRAM} key add nagios1 --directory /etc/sam
  {PROGRAM} key show
  {PROGRAM} key show /etc/sam/nagios1.pem
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    actions = parser.add_subparsers(dest="action")

    summary = "write a new key to NAME.pem, which only its owner can read"
    add_key = add_action(actions, "add", handle, summary, EXAMPLES)
    add_key.add_argument(
        "name",
        type=checked_argument(problem_of_name),
        metavar="NAME",
        help="name of the key, unique in a policy",
    )
    add_key.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="directory of the file (default: the working directory)",
    )
    summary = "show the name and the public part of a key"
    show_action = add_action(actions, "show", handle, summary, EXAMPLES)
    show_action.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="file of the key (default: that of signing_key_file)",
    )


def handle(args: argparse.Namespace) -> int:
    if args.action == "add":
        path = args.directory / f"{args.name}{SUFFIX}"
        make_key(path)
        try:
            show(load_signer(path), path, args)
        except ConfigError:
            with suppress(OSError):
                path.unlink()  # so that the next attempt finds no file
            raise
        advice = f'set signing_key_file = "{path.resolve()}" in [publisher] of sam.toml'
        print_done(args, f"made {path}: {advice}", file=sys.stderr)
        return OK
    path = args.file or config_of(args).signing_key_file
    if path is None:
        raise PublishUsage("no key: name its file, or set signing_key_file in [publisher]")
    show(load_signer(path), path, args)
    return OK


def show(signer: Signer, path: Path, args: argparse.Namespace) -> None:
    """Print the lines for the policy; with --json, everything about the key."""
    identity, public_key = key_identity(signer.name), str(signer.public_key())
    if args.json:
        facts = {"name": signer.name, "file": str(path), "identity": identity}
        print_json({**facts, "public_key": public_key, "tool": signer.tool})
        return
    print_lines(f'is = ["{identity}"]', f'keys = ["{public_key}"]')
