"""`sam-consume subject`: the identity of who has a certificate."""

from __future__ import annotations

import argparse
from pathlib import Path

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import certificate_identity
from sam_pipeline.schema.net.subject import subject_of
from sam_pipeline.schema.program.command import OK, print_lines

DESCRIPTION = """\
Print the identity of who has a certificate, as a policy (publishers) lists it and as records have
it. That of an X.509 proxy is the identity of its user: give the certificate of the user.
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
    subject = subject_of(args.file)
    if subject is None:
        raise ConfigError([f"{args.file}: can't be read, or has no certificate in PEM format"])
    print_lines(certificate_identity(subject))
    return OK
