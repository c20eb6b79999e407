"""`sam-consume subject`: the identity of who has a certificate."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import certificate_identity
from sam_pipeline.schema.net.certificate import certificates, is_proxy, subject_in
from sam_pipeline.schema.program.command import OK, print_lines

DESCRIPTION = """\
Print the identity of who has a certificate, as a policy (publishers) lists it and as records have
it. An X.509 proxy has the identity of its user, whose certificate is in the same file.
"""
EXAMPLES = """\
examples:
  sam-consume subject nagios1.pem
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=handle)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("file", type=Path, metavar="FILE", help="a certificate in PEM format")


def handle(args: argparse.Namespace) -> int:
    subject = None
    with suppress(OSError, ValueError):
        users = (one for one in certificates(args.file) if not is_proxy(one))
        subject = subject_in(next(users, b""))
    if subject is None:
        raise ConfigError([f"{args.file}: can't be read, or has no certificate of a user as PEM"])
    print_lines(certificate_identity(subject))
    return OK
