"""`sam-publish check`: all problems at once; with --connect, a round trip to each broker."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sam_pipeline.publisher.brokers.tokens import (
    configured_token,
    discovered_token,
    door_token,
    token_for,
)
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.commands.arguments import add_broker_options, flags_of
from sam_pipeline.publisher.delivery.outgoing import command_origin, destination_at, signer_of
from sam_pipeline.publisher.delivery.route import addresses_of
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError
from sam_pipeline.publisher.settings import (
    BrokerTable,
    PublisherConfig,
    completed,
    problems_between_keys,
    scratch_of,
)
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import DESTINATION, Message, new_message
from sam_pipeline.schema.net.broker import (
    AMS,
    DOOR,
    SPOOL,
    WITHOUT_LOGIN,
    Target,
    TlsFiles,
    is_loopback,
    problem_of_target,
)
from sam_pipeline.schema.net.certificate import (
    examine_certificates,
    first_certificate,
    is_proxy,
)
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.net.tls import tls_context
from sam_pipeline.schema.program.command import OK, print_done, print_json, print_lines, text_table
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.schema.secret_file import Secret
from sam_pipeline.schema.settings import show
from sam_pipeline.schema.settings.broker import secret_of
from sam_pipeline.schema.settings.files import no_file_found
from sam_pipeline.schema.settings.section import Findings, TomlTable, examine
from sam_pipeline.schema.spool.inspection import (
    shared_by_half,
    unusable_quarantine,
    unusable_queue,
)

COLUMNS = ("copy", "broker", "address", "proven", "seconds")

DESCRIPTION = """\
Check configuration, files, their modes, secrets and certificates, and report all problems at once
(exit code 78). A certificate that expires within 14 days is only a note. With --connect, send a
message of class `sam-check` to each broker and wait for it to come back, and note where one without
login and certificate is also confirmed: anybody may publish there. Consumers count such messages,
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


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """The command `config`."""

    def sections(args: argparse.Namespace) -> list[Findings[Any]]:
        config, findings, *_ = next(examine_config(args.config, flags_of(args)))
        findings.values.setdefault("state", config.state)
        findings.values.setdefault("spool", config.spool)
        return [findings]

    show.add_options(parser, sections)
    add_broker_options(parser)


def handle(args: argparse.Namespace) -> int:
    """Print notes and round trips.

    Raises:
        ConfigError: all problems.
    """
    examined = [
        keys._replace(config=keys.config.replace(option_destination=args.destination))
        for keys in examine_config(args.config, flags_of(args))
    ]
    config, findings, *_ = examined[0]
    problems, notes = [*findings.problems], list[str]()
    if not findings.problems:
        problems += problems_between_keys(config)
    trips: list[tuple[str, RoundTrip]] = []
    for keys in examined:
        problems += find_problems(keys)
        notes += find_likely_mistakes(keys)
        if args.connect and not findings.bad & {"destination", "message_class"}:
            for trip in round_trips(keys.config):
                trips.append((keys.config.copy_name, trip))
                if trip.problem:
                    problems.append(
                        f"{keys.origin_at(trip.broker, 'url', 'brokers')}: {trip.problem}"
                    )
    notes += dict.fromkeys(note for _, trip in trips for note in trip.notes)
    secrets = secrets_set(config)
    signer = None
    if config.signing_key_file and "signing_key_file" not in findings.bad:
        try:
            signer = signer_of(config.signing_key_file)
            signer.sign(b"")  # the program may be too old
        except ConfigError as error:
            key = findings.locate("signing_key_file")
            problems += [f"{key}: {problem}" for problem in error.problems]
    if args.json:
        brokers = [{**trip._asdict(), "copy": copy or None} for copy, trip in trips]
        document = {"problems": problems, "notes": notes, "brokers": brokers, "secrets": secrets}
        signing = {"key": signer.name, "tool": signer.tool} if signer else None
        print_json({**document, "signing": signing})
    else:
        states = (f"{name} {'set' if is_set else 'unset'}" for name, is_set in secrets.items())
        if not problems:
            print_done(args, ", ".join(states))
        if signer:
            print_done(args, f"messages are signed with the key {signer.name}, by {signer.tool}")
        if trips:
            rows = [
                (copy or "-", t.broker, t.address, t.proven or "failed", f"{t.seconds:.3f}")
                for copy, t in trips
            ]
            first = 0 if config.copy else 1
            print_lines(*text_table(COLUMNS[first:], [row[first:] for row in rows]))
        print_done(args, *[f"note: {note}" for note in notes], file=sys.stderr)
        if not problems:
            print_done(args, "no problem found")
    if problems:
        raise ConfigError(problems)
    return OK


def find_problems(keys: ConfigKeys) -> Iterator[str]:
    """Problems that the check of a single key does not find."""
    config, bad = keys.config, keys.bad
    if not config.targets and not bad & {"brokers", "broker"}:
        yield f"{keys.origin('brokers')} is missing: all messages would stay in the spool"
        if keys.findings.document.path is None:
            yield no_file_found()
    if not bad & set(TlsFiles._fields):
        if config.key_file and not config.certificate_file:
            yield f"{keys.origin('key_file')}: has no effect without certificate_file"
        files: dict[TlsFiles, Target] = {}
        for target in config.targets:
            if target.broker.tls:
                files.setdefault(target.tls_files, target)
        for used, target in files.items():
            paths = filter(None, (used.ca_file, used.crl_file))
            try:
                tls_context(used)
            except ConfigError as error:
                for problem in error.problems:
                    path = next((path for path in paths if problem.startswith(f"{path}:")), None)
                    yield f"{keys.origin_of_file(path, target)}: {problem}"
    yield from _certificate_texts(keys, problems=True)
    for target in config.targets:
        yield from _problems_at(target, keys)
    if config.spool is not None:
        reason = unusable_queue(config.spool, writes=True, shared=config.shares_spool)
        if reason:
            yield f"{keys.origin('spool')}: {reason}"


def _problems_at(target: Target, keys: ConfigKeys) -> Iterator[str]:
    """The problems of one broker; a key that is bad by itself was reported by its own check."""
    config, broker, bad = keys.config, target.broker, keys.bad
    try:
        if not bad & {"proxy", "proxy_password_file"}:
            target.find_proxy()
        if "password_file" not in bad:
            target.login()
        if broker.kind == DOOR and "token_file" not in bad:
            door_token(target)
    except ConfigError as error:
        yield f"{keys.origin_at(broker, 'url', 'brokers')}: {broker}: {error}"
    if broker.kind == AMS and "token_file" not in bad:
        key = keys.origin_at(broker, "token_file")
        try:
            if not token_for(target):
                yield f"{key} is missing: {AMS} brokers require a token"
        except ConfigError as error:
            yield f"{key}: {error}"
    if refusal := kind_of(broker).refusal_of(broker, check_message(config, target)):
        key = keys.origin_at(broker, "destinations", "destination")
        if not (config.destination or target.destinations):
            key = keys.origin_at(broker, "url", "brokers")
        yield f"{key}: {broker}: {refusal}"
    if broker.kind == SPOOL:
        reason = unusable_queue(Path(broker.path), writes=True, shared=broker.shared)
        if reason:
            yield f"{keys.origin_at(broker, 'url', 'brokers')}: {reason}"


def find_likely_mistakes(keys: ConfigKeys) -> Iterator[str]:
    """Settings that work, but are likely to be mistakes."""
    config = keys.config
    scratch = scratch_of(config.spool) if config.spool else None
    if scratch:
        origin = keys.origin("spool")
        yield f"{origin}: {config.spool} is below ${scratch} and is removed with the job"
    if config.spool is not None:
        halves = shared_by_half(config.spool, config.shares_spool)
        for problem in filter(None, (unusable_quarantine(config.spool), halves)):
            yield f"{keys.origin('spool')}: {problem}"
    yield from _certificate_texts(keys, problems=False)
    proxies = set()
    for target in config.targets:
        broker = target.broker
        if broker.kind == SPOOL and (note := shared_by_half(Path(broker.path), broker.shared)):
            yield f"{keys.origin_at(broker, 'url', 'brokers')}: {note}"
        with suppress(ConfigError):  # reported by `find_problems`
            proxies.add(target.find_proxy())
        if broker.kind in WITHOUT_LOGIN or "password_file" in keys.bad:
            continue
        try:
            user, secret = target.login()
        except ConfigError:  # reported by `find_problems`
            continue
        if user and not secret:
            yield f"{broker}: user {user} has no password (password_file, SAM_PUBLISHER_PASSWORD)"
        elif secret and not broker.tls and not is_loopback(broker.host):
            yield f"{broker}: the password of {user} is sent in plain text"
    for proxy in filter(None, proxies):
        if proxy.password and not is_loopback(proxy.host):
            yield f"{proxy}: the password of {proxy.user} is sent in plain text"
    for target in config.targets:
        broker, certificate = target.broker, target.tls_files.certificate_file
        with suppress(OSError, ValueError):
            if not certificate or not broker.tls or broker.kind == DOOR:
                continue
            if is_proxy(first_certificate(certificate)):
                text = "is an X.509 proxy, which only doors accept (sam+https, proxy_depth)"
                yield f"{broker}: {certificate} {text}"
    users = [config.user, *(target.broker.user for target in config.targets)]
    if config.password_file and not (config.targets and any(users)):
        yield f"{keys.origin('password_file')}: is not used, because no user is configured"


def examine_config(path: str | None, flags: Mapping[str, Any]) -> Iterator[ConfigKeys]:
    """The configuration, without bad brokers and with defaults for other bad values.

    The settings of the section come first, then those of copies without problems.

    Raises:
        ConfigError: the file does not exist, or is not TOML.
    """
    findings = examine(PublisherConfig, path, **flags)
    urls = findings.rejected.get("brokers", findings.values.get("brokers", ()))
    tables, copies = (findings.values.get(name, ()) for name in ("broker", "copy"))
    config = PublisherConfig(
        **{
            **findings.values,
            "brokers": tuple(url for url in urls if problem_of_target(url) is None),
            "broker": tuple(filter(None, tables)),
            "copy": tuple(filter(None, copies)),
        }
    )
    config = completed(config, flags)
    yield ConfigKeys(config, findings, findings.table, findings.bad, tables)
    numbers = {copy.name: number for number, copy in enumerate(copies, 1) if copy}
    for copy in config.copies:
        table = findings.table.item("copy", numbers[copy.copy_name])
        yield ConfigKeys(copy, findings, table, frozenset(), copy.broker)


class ConfigKeys(NamedTuple):
    """One configuration, that of the section or of a copy, and where its keys are set."""

    config: PublisherConfig
    findings: Findings[PublisherConfig]
    table: TomlTable
    bad: Set[str]
    """The fields with a bad value; a copy that has one is left out as a whole."""
    broker_tables: Sequence[BrokerTable | None]

    def origin(self, key: str) -> str:
        """Where a key is set: `sam.toml:7: [publisher] copy[1] spool`, or a variable."""
        return (self.table if self.config.copy_name else self.findings).locate(key)

    def origin_at(self, broker: object, *keys: str) -> str:
        """Where the first of the keys is set that the table of a broker sets.

        If it sets none of them: where the last one is set outside of the table.
        """
        for number, table in enumerate(self.broker_tables, 1):
            if table and str(table.broker) == str(broker):
                for key in keys:
                    if getattr(table, key, None):
                        return self.table.item("broker", number).locate(key)
        return self.origin(keys[-1])

    def origin_of_file(self, path: Path | None, target: Target) -> str:
        """Where the file for TLS that applies at a broker is named."""
        names = ("ca_file", "crl_file", "certificate_file")
        files = target.tls_files
        key = next((n for n in names if path and getattr(files, n) == path), names[-1])
        return self.origin_at(target.broker, key)


def secrets_set(config: PublisherConfig) -> dict[str, bool]:
    """Which secrets are set; a secret in a file that can't be used counts as unset."""
    is_set = {}
    for name in config.SECRETS:
        secret = secret_of(config.SECTION, name, getattr(config, f"{name}_file"))
        text = None
        with suppress(ConfigError):
            text = configured_token(secret) if name == "token" else secret.read()
            if name == "token" and not text:
                text = discovered_token(os.environ)
        is_set[name.replace("_", " ")] = bool(text)
    return is_set


def _certificate_texts(keys: ConfigKeys, problems: bool) -> Iterable[str]:
    """The problems or the notes about the dates of all certificates, with the key of the file."""
    config, now = keys.config, datetime.now(timezone.utc)
    files = {config.ca_file: "ca_file", config.crl_file: "crl_file"}
    found = [
        (keys.origin(files.get(one.path, "certificate_file")), one)
        for one in examine_certificates(
            config.certificate_file, config.ca_file, config.crl_file, now
        )
    ]
    for table in config.broker:
        ca, own, crl = table.ca_file, table.certificate_file, table.crl_file
        target = Target(table.broker, tls_files=TlsFiles(ca, own, crl_file=crl))
        for one in examine_certificates(own, ca, crl, now):
            found.append((keys.origin_of_file(one.path, target), one))
    texts = (f"{origin}: {one.text}" for origin, one in found if one.is_problem == problems)
    return dict.fromkeys(texts)


def check_message(config: PublisherConfig, target: Target) -> Message:
    """A message to where results go at a broker; consumers count its class and load nothing."""
    destination = destination_at(target, config.message_class, config)
    headers = {DESTINATION: destination, **command_origin("check")}
    body = f"sam-publish check on {socket.gethostname()}\n"
    return new_message(CHECK_CLASS, body, headers=headers)


def round_trips(config: PublisherConfig) -> Iterator[RoundTrip]:
    """One for each address of each broker, each in an equal share of the remaining time."""
    deadline = Deadline.after(config.timeout_s)
    for number, named in enumerate(config.targets, 1):
        later = len(config.targets) - number
        message = check_message(config, named)
        destination = message.headers[DESTINATION]
        try:
            addresses = addresses_of(named, deadline.share(later + 1))
        except BrokerUnavailable as failure:
            yield RoundTrip(str(named), "", destination, None, 0.0, str(failure))
            continue
        for position, target in enumerate(addresses):
            share = deadline.share(len(addresses) - position + later)
            prove = partial(kind_of(target.broker).round_trip, target, message, share)
            trip = timed(target.broker, target.ip, destination, prove, PublishError)
            is_open = trip.problem is None and _anybody_may_publish(target, config, share)
            yield trip._replace(anybody_may_publish=is_open)


def _anybody_may_publish(target: Target, config: PublisherConfig, deadline: Deadline) -> bool:
    """Whether a broker that took our message also confirms one without login and certificate."""
    broker, files = target.broker, target.tls_files
    if broker.kind in (AMS, SPOOL):  # they always know the sender
        return False
    secret = door_token(target) if broker.kind == DOOR else target.user
    if not (secret or (broker.tls and files.certificate_file)):
        return True
    trust = files._replace(certificate_file=None, key_file=None)
    nobody = target._replace(user=None, token=Secret(), tls_files=trust)
    with suppress(PublishError), closing(kind_of(broker)(nobody, deadline)) as transport:
        return bool(list(transport.send([check_message(config, target)], deadline)))
    return False
