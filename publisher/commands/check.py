"""`sam-publish check`: every problem at once; with --connect the way to each broker and back."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sam_pipeline.publisher.brokers.address import addresses_of
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.commands.arguments import add_where
from sam_pipeline.publisher.commands.options import flags_of
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError
from sam_pipeline.publisher.settings.config import DESTINATION, PublisherConfig, examine_config
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.net.broker_url import AMS, SPOOL
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.program.command import OK, text_table, to_json
from sam_pipeline.schema.program.config import Findings
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.schema.spool.disk import unusable

PLAIN_TEXT_IS_FINE = ("localhost", "127.", "::1")
COLUMNS = ("broker", "address", "proven", "seconds")

DESCRIPTION = """\
Look at configuration, files, their modes and secrets, and report every problem at once (exit code
78). With --connect, send each broker a message of class `sam-check` and see it come back:
consumers count such messages and never load them.
"""
EXAMPLES = """\
examples:
  sam-publish check
  sam-publish check --connect --broker stomp://msg.example.org
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("--connect", action="store_true", help="prove a round trip per broker, too")
    parser.add_argument(
        "--destination", help="of the check messages (default: where results would go)"
    )
    add_where(parser)


def handle(args: argparse.Namespace) -> int:
    """Print all problems, and what was proven of each broker.

    Raises:
        ConfigError: all the problems.
    """
    config, findings = examine_config(args.config, flags_of(args))
    problems = [*findings.problems, *_problems(config, findings)]
    notes = list(_notes(config, findings))
    trips = list(_round_trips(config)) if args.connect else []
    problems += [f"{findings.place('brokers')}: {trip.problem}" for trip in trips if trip.problem]
    if args.json:
        brokers = [trip._asdict() for trip in trips]
        document = {"problems": problems, "notes": notes, "brokers": brokers}
        print(to_json({**document, "secrets": config.has_secrets()}))
    else:
        secrets = config.has_secrets().items()
        print(", ".join(f"{name} {'set' if there else 'unset'}" for name, there in secrets))
        if trips:
            rows = [(t.broker, t.address, t.proven or "failed", f"{t.seconds:.3f}") for t in trips]
            print(text_table(COLUMNS, rows))
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        if not problems:
            print("no problem found")
    sys.stdout.flush()  # what was proven stands before what was not
    if problems:
        raise ConfigError(problems)
    return OK


def _problems(config: PublisherConfig, findings: Findings) -> Iterator[str]:
    """What single keys do not show."""
    brokers = config.broker_list
    if not brokers and "brokers" not in findings.bad:
        yield f"{findings.place('brokers')} is missing: all messages would stay in the spool"
    if any(broker.kind == AMS for broker in brokers) and not findings.bad & {"token_file"}:
        key = findings.place("token_file")
        try:
            if not config.token():
                yield f"{key} is missing: brokers of the kind {AMS} need a token"
        except BrokerUnavailable as error:
            yield f"{key}: {error.reason}"
    if not findings.bad & {"ca_file", "certificate_file", "key_file"}:
        if config.key_file and not config.certificate_file:
            yield f"{findings.place('key_file')}: is of no use without certificate_file"
        if any(broker.tls for broker in brokers):
            from sam_pipeline.schema.net.tls import tls_context  # `import ssl` is slow

            try:
                tls_context(config.tls_files)
            except ConfigError as error:
                for tls_problem in error.problems:
                    about_ca = config.ca_file and tls_problem.startswith(f"{config.ca_file}:")
                    key = "ca_file" if about_ca else "certificate_file"
                    yield f"{findings.place(key)}: {tls_problem}"
    for broker in brokers:
        try:  # a key that is bad by itself is reported already
            if not findings.bad & {"proxy", "proxy_password_file"}:
                config.proxy_for(broker)
            if "password_file" not in findings.bad:
                config.login(broker)
        except BrokerUnavailable as error:
            yield f"{findings.place('brokers')}: {error}"
        if broker.kind == SPOOL and (problem := unusable(Path(broker.path))):
            yield f"{findings.place('brokers')}: {problem}"
    if config.spool is not None and (problem := unusable(config.spool)):
        yield f"{findings.place('spool')}: {problem}"


def _notes(config: PublisherConfig, findings: Findings) -> Iterator[str]:
    """What works, and is better known."""
    scratch = config.scratch_of_spool()
    if scratch:
        yield f"{findings.place('spool')}: {config.spool} is below ${scratch}, it dies with the job"
    for broker in config.broker_list:
        if broker.kind in (AMS, SPOOL) or "password_file" in findings.bad:
            continue
        try:
            user, secret = config.login(broker)
        except BrokerUnavailable:  # reported as a problem
            continue
        if user and not secret:
            yield f"{broker}: user {user} has no password (password_file, SAM_PUBLISHER_PASSWORD)"
        elif secret and not broker.tls and not broker.host.startswith(PLAIN_TEXT_IS_FINE):
            yield f"{broker}: the password of {user} travels in plain text"
    if config.password_file and not any(b.user or config.user for b in config.broker_list):
        yield f"{findings.place('password_file')}: is not used, for there is no user"


def _round_trips(config: PublisherConfig) -> Iterator[RoundTrip]:
    """One for each address of each broker, in equal shares of the time."""
    # It goes where results would go; consumers count its class and load nothing.
    destination = config.destination_of(config.message_class)
    message = new_message(CHECK_CLASS, f"sam-publish check on {socket.gethostname()}\n")
    message = Message({**message.headers, DESTINATION: destination}, message.body)
    deadline = Deadline.after(config.timeout_s)
    brokers = config.broker_list
    for position, broker in enumerate(brokers):
        later = len(brokers) - position - 1
        try:
            via_proxy = config.proxy_for(broker) is not None
            addresses = addresses_of(broker, deadline.share(later + 1), via_proxy)
        except BrokerUnavailable as failure:
            yield RoundTrip(str(broker), "", destination, None, 0.0, str(failure))
            continue
        for at, address in enumerate(addresses):
            share = deadline.share(len(addresses) - at + later)
            prove = partial(kind_of(broker).round_trip, address, config, message, share)
            yield timed(broker, address.ip, destination, prove, PublishError)
