"""`sam-publish check`: all problems at once; with --connect, a round trip to each broker."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.commands.arguments import add_broker_options
from sam_pipeline.publisher.commands.options import flags_of
from sam_pipeline.publisher.delivery.round_trips import check_message, round_trips
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig, examine_config
from sam_pipeline.publisher.settings.signing import signer_of
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import AMS, DOOR, SPOOL, WITHOUT_LOGIN, is_loopback
from sam_pipeline.schema.net.certificate import CertificateFinding, examine_certificates
from sam_pipeline.schema.net.tls import TlsFiles, tls_context
from sam_pipeline.schema.program.command import OK, print_done, print_json, print_lines, text_table
from sam_pipeline.schema.program.config import Findings, no_file_found
from sam_pipeline.schema.spool.access import (
    shared_by_half,
    unusable_quarantine,
    unusable_queue,
)

COLUMNS = ("broker", "address", "proven", "seconds")

DESCRIPTION = """\
Check configuration, files, their modes, secrets and certificates, and report all problems at once
(exit code 78). A certificate that expires within 14 days is only a note. With --connect, send a
message of class `sam-check` to each broker and wait for it to come back, and note where one without
login and certificate is confirmed, too: anybody may publish there. Consumers count such messages,
but do not load them.
"""
EXAMPLES = """\
examples:
  sam-publish check
  sam-publish check --connect --broker stomp://msg.example.org
  sam-publish check --connect --broker sam+https://door.example.org
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=handle)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument(
        "--connect", action="store_true", help="send a check message to each broker"
    )
    parser.add_argument(
        "--destination",
        metavar="NAME",
        help="topic or queue of the check messages (default: that of results)",
    )
    add_broker_options(parser)


def handle(args: argparse.Namespace) -> int:
    """Print notes and round trips.

    Raises:
        ConfigError: all problems.
    """
    config, findings = examine_config(args.config, flags_of(args))
    problems = [*findings.problems, *find_problems(config, findings)]
    notes = list(find_likely_mistakes(config, findings))
    is_addressed = not findings.bad & {"destination", "message_class"}
    trips = list(round_trips(config)) if args.connect and is_addressed else []
    problems += [f"{findings.origin('brokers')}: {trip.problem}" for trip in trips if trip.problem]
    notes += dict.fromkeys(trip.note for trip in trips if trip.note)
    secrets = config.has_secrets()
    signer = None
    if config.signing_key_file and "signing_key_file" not in findings.bad:
        try:
            signer = signer_of(config.signing_key_file)
            signer.sign(b"")  # the program may be too old
        except ConfigError as error:
            key = findings.origin("signing_key_file")
            problems += [f"{key}: {problem}" for problem in error.problems]
    if args.json:
        brokers = [trip._asdict() for trip in trips]
        document = {"problems": problems, "notes": notes, "brokers": brokers, "secrets": secrets}
        signing = {"key": signer.name, "tool": signer.tool} if signer else None
        print_json({**document, "signing": signing})
    else:
        states = (f"{name} {'set' if is_set else 'unset'}" for name, is_set in secrets.items())
        print_done(args, ", ".join(states), success=not problems)
        if signer:
            print_done(args, f"messages are signed with the key {signer.name}, by {signer.tool}")
        if trips:
            rows = [(t.broker, t.address, t.proven or "failed", f"{t.seconds:.3f}") for t in trips]
            print_lines(*text_table(COLUMNS, rows))
        print_done(args, *[f"note: {note}" for note in notes], file=sys.stderr)
        if not problems:
            print_done(args, "no problem found")
    if problems:
        raise ConfigError(problems)
    return OK


def find_problems(config: PublisherConfig, findings: Findings) -> Iterator[str]:
    """Problems that the check of a single key does not find."""
    brokers, message = config.broker_list, check_message(config)
    if not brokers and "brokers" not in findings.bad:
        yield f"{findings.origin('brokers')} is missing: all messages would stay in the spool"
        if findings.file is None:
            yield no_file_found()
    if any(broker.kind == AMS for broker in brokers) and not findings.bad & {"token_file"}:
        key = findings.origin("token_file")
        try:
            if not config.token():
                yield f"{key} is missing: {AMS} brokers require a token"
        except BrokerUnavailable as error:
            yield f"{key}: {error.reason}"
    if not findings.bad & set(TlsFiles._fields):
        if config.key_file and not config.certificate_file:
            yield f"{findings.origin('key_file')}: has no effect without certificate_file"
        if any(broker.tls for broker in brokers):
            paths = filter(None, (config.ca_file, config.crl_file))
            try:
                tls_context(config.tls_files)
            except ConfigError as error:
                for problem in error.problems:
                    path = next((path for path in paths if problem.startswith(f"{path}:")), None)
                    yield f"{_origin_of(path, config, findings)}: {problem}"
        for certificate in _examined_certificates(config):
            if certificate.is_problem:
                yield f"{_origin_of(certificate.path, config, findings)}: {certificate.text}"
    for broker in brokers:
        try:  # a key that is bad by itself was reported by its own check
            if not findings.bad & {"proxy", "proxy_password_file"}:
                config.proxy_for(broker)
            if "password_file" not in findings.bad:
                config.login(broker)
            if broker.kind == DOOR and "token_file" not in findings.bad:
                config.door_token(broker)
        except BrokerUnavailable as error:
            yield f"{findings.origin('brokers')}: {error}"
        if refusal := kind_of(broker).refusal_of(broker, message):
            key = findings.origin("destination" if config.destination else "brokers")
            yield f"{key}: {broker}: {refusal}"
        if broker.kind == SPOOL:
            reason = unusable_queue(Path(broker.path), writes=True, shared=broker.shared)
            if reason:
                yield f"{findings.origin('brokers')}: {reason}"
    if config.spool is not None:
        reason = unusable_queue(config.spool, writes=True, shared=config.shares_spool)
        if reason:
            yield f"{findings.origin('spool')}: {reason}"


def find_likely_mistakes(config: PublisherConfig, findings: Findings) -> Iterator[str]:
    """Settings that work, but are likely to be mistakes."""
    scratch = config.scratch_of_spool()
    if scratch:
        origin = findings.origin("spool")
        yield f"{origin}: {config.spool} is below ${scratch} and is removed with the job"
    if config.spool is not None:
        for note in (
            unusable_quarantine(config.spool),
            shared_by_half(config.spool, config.shares_spool),
        ):
            if note:
                yield f"{findings.origin('spool')}: {note}"
    for certificate in _examined_certificates(config):
        if not certificate.is_problem:
            yield f"{_origin_of(certificate.path, config, findings)}: {certificate.text}"
    proxies = set()
    for broker in config.broker_list:
        if broker.kind == SPOOL and (note := shared_by_half(Path(broker.path), broker.shared)):
            yield f"{findings.origin('brokers')}: {note}"
        with suppress(BrokerUnavailable):  # reported by `find_problems`
            proxies.add(config.proxy_for(broker))
        if broker.kind in WITHOUT_LOGIN or "password_file" in findings.bad:
            continue
        try:
            user, secret = config.login(broker)
        except BrokerUnavailable:  # reported by `find_problems`
            continue
        if user and not secret:
            yield f"{broker}: user {user} has no password (password_file, SAM_PUBLISHER_PASSWORD)"
        elif secret and not broker.tls and not is_loopback(broker.host):
            yield f"{broker}: the password of {user} is sent in plain text"
    for proxy in filter(None, proxies):
        if proxy.password and not is_loopback(proxy.host):
            yield f"{proxy}: the password of {proxy.user} is sent in plain text"
    if config.password_file and not any(b.user or config.user for b in config.broker_list):
        yield f"{findings.origin('password_file')}: is not used, because no user is configured"


def _examined_certificates(config: PublisherConfig) -> Iterator[CertificateFinding]:
    ours, authorities, lists = config.certificate_file, config.ca_file, config.crl_file
    return examine_certificates(ours, authorities, lists, datetime.now(timezone.utc))


def _origin_of(path: Optional[Path], config: PublisherConfig, findings: Findings) -> str:
    """The key of the configuration that names a file for TLS."""
    keys = {config.ca_file: "ca_file", config.crl_file: "crl_file"}
    return findings.origin(keys.get(path, "certificate_file") if path else "certificate_file")
