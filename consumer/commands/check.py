"""`sam-consume check`: all problems at once, and with --connect round trips through the brokers."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from fnmatch import fnmatch
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

from sam_pipeline.consumer.commands.arguments import add_targets
from sam_pipeline.consumer.commands.files import dated_files, problems_of_files
from sam_pipeline.consumer.monitoring.observer import certificate_lives
from sam_pipeline.consumer.process.listening import listening_sockets
from sam_pipeline.consumer.settings.config import ConsumerConfig, examine_consumer, load_consumer
from sam_pipeline.consumer.sinks.relay import login_trip
from sam_pipeline.consumer.sources.door.answers import HEALTH, HEALTHY
from sam_pipeline.consumer.sources.make import stomp_settings
from sam_pipeline.consumer.sources.stomp.round_trip import round_trips
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import ANONYMOUS, BROKER, UID, token_identity
from sam_pipeline.schema.identity.policy import ANY, load_policy
from sam_pipeline.schema.identity.tokens import load_tokens
from sam_pipeline.schema.net.broker import STOMP, Broker, Proxy, is_loopback
from sam_pipeline.schema.net.certificate import (
    first_certificate,
    host_names_of,
)
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.round_trip import RoundTrip
from sam_pipeline.schema.program.command import (
    NO_PERMISSION,
    OK,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.settings import show
from sam_pipeline.schema.settings.section import Findings, examine
from sam_pipeline.schema.spool.inspection import unusable_quarantine, writable_by_others

EXAMPLES = """\
examples:
  sam-consume check
  sam-consume check --files            only the files of a reload, without the database
  sam-consume check --connect          also send a message through each broker, and wait for it;
                                       show what listens at listen+https:// and listen+http://
  sam-consume check --to spool:///var/spool/sam-in      of a relay, which needs no database
  sam-consume check --connect --to stomp://msg2.example.org      also log in there
  sam-consume --config /etc/sam/sam.toml check --json

Exit code: 78 if there is a problem, such as an expired certificate; one that expires within 14
days is a note, and so is a topic where a message without login and certificate is confirmed, since
anybody may publish there. The messages have the class sam-check: consumers count and ack them
without loading anything.
"""

ANSWER_S = 5.0
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean every one of this host, and how to reach them from here."""
ALIVE = "listening"
FREE = "nothing listens here: the port is free"
OUTDATED = "listening with an older certificate than certificate_file has now: reload the daemon"
PRIVILEGED = "ports below 1024 are opened by systemd (sam-door.socket)"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--files", action="store_true", help="use neither the database nor brokers")
    parser.add_argument(
        "--connect", action="store_true", help="also test the path from each broker and destination"
    )
    add_targets(parser)
    parser.set_defaults(handler=run_check, usage_error=parser.error)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """The command `config`."""

    def sections(args: argparse.Namespace) -> Iterator[Findings[Any]]:
        yield examine_consumer(args)
        try:
            from sam_pipeline.sql.database.config import DatabaseConfig
        except ImportError:  # a relay needs no database
            return
        yield examine(DatabaseConfig, args.config)

    show.add_options(parser, sections)


def run_check(args: argparse.Namespace) -> int:
    """Check everything and print the round trips; raises ConfigError with all problems."""
    if args.files and args.connect:
        args.usage_error("--files: not with --connect")
    problems: list[str] = []
    config, trips = None, list[RoundTrip]()
    try:
        config = load_consumer(args)
        problems += problems_of_files(config)
    except ConfigError as error:
        if error.exit_code == NO_PERMISSION:  # the named file: there is nothing to check
            raise
        problems += error.problems
    notes = [*_notes(config)] if config else []
    relays = bool(args.to)
    with suppress(ConfigError):  # the key, even if the configuration has problems
        relays = relays or bool(examine_consumer(args).values.get("relay_to"))
    if not relays:
        from sam_pipeline.consumer.sinks.database import database_findings

        notes += _policy_notes(config) if config else ()
        for is_problem, text in database_findings(args, config):
            (problems if is_problem else notes).append(text)
    if config and not args.files:
        trips += (door_trip(broker, config) for broker in config.doors)
    if config and args.connect:
        client_id = f"{config.name}-check-{os.getpid()}"
        for broker in config.network_brokers:
            trips += round_trips(broker, stomp_settings(config, client_id, broker))
        trips += [login_trip(target, config) for target in config.targets if target.kind == STOMP]
    problems += [trip.problem for trip in trips if trip.problem]
    notes += dict.fromkeys(note for trip in trips for note in trip.notes)
    notes += [f"{trip.broker}: {OUTDATED}" for trip in trips if trip.proven == OUTDATED]
    problems = list(dict.fromkeys(problems))  # both sections report problems of the file
    _print_findings(args, problems, notes, trips, config)
    if problems:
        raise ConfigError(problems)
    return OK


def _print_findings(
    args: argparse.Namespace,
    problems: Sequence[str],
    notes: Sequence[str],
    trips: Sequence[RoundTrip],
    config: ConsumerConfig | None,
) -> None:
    """Print the findings; as text without the problems, which the error has."""
    now = datetime.now(UTC)
    lives = list(certificate_lives(config)) if config else []
    if args.json:
        print_json(
            {
                "problems": problems,
                "notes": notes,
                "brokers": [trip._asdict() for trip in trips],
                "certificates": [
                    {**life._asdict(), "days_left": round(life.days_left(now), 1)} for life in lives
                ],
            }
        )
        return
    if args.connect and trips:
        rows = [(*trip[:3], trip.proven or "failed", f"{trip.seconds:.3f}") for trip in trips]
        print_lines(*text_table(("broker", "address", "destination", "proven", "seconds"), rows))
    if lives:
        dates = [
            (life.file, f"{life.end:%Y-%m-%d}", f"{life.days_left(now):.0f}") for life in lives
        ]
        print_lines(*text_table(("certificate", "expires", "days left"), dates))
    print_done(args, *[f"note: {note}" for note in notes], file=sys.stderr)
    if not problems:
        print_done(args, "no problem found")


def _notes(config: ConsumerConfig) -> Iterator[str]:
    """What works, but perhaps not as intended or not for long."""
    yield from (found.text for found in dated_files(config) if not found.is_problem)
    for url, path in config.spools.items():
        if problem := unusable_quarantine(path):
            yield f"{url}: {problem}"
    proxies = set[Proxy]()
    for broker in (*config.network_brokers, *config.targets):
        target = config.target_of(broker)
        if target.user and target._replace(insecure=False).problem_of_login():
            yield f"{broker}: the password of {target.user} is sent in plain text"
        with suppress(ConfigError):  # reported as a problem
            proxies |= {*filter(None, [target.find_proxy()])}
    for proxy in proxies:
        if proxy.password and not is_loopback(proxy.host):
            yield f"{proxy}: the password of {proxy.user} is sent in plain text"
    read = [item for broker in config.network_brokers for item in config.subscriptions_at(broker)]
    for subscription in config.network_subscriptions if config.network_brokers else ():
        if subscription not in read:
            yield f"[consumer] subscription {subscription.destination}: it is read at no broker"
    if config.doors:
        yield from door_notes(config)


def _policy_notes(config: ConsumerConfig) -> Iterator[str]:
    """Why the policy refuses nothing, or does not know a sender that it lists."""
    if config.policy_file is None:
        yield (
            "[consumer] policy_file is not set: messages of all senders are accepted"
            " (docs/identity.md)"
        )
        return
    with suppress(ConfigError):
        policy = load_policy(config.policy_file)
        if not policy.enforces:
            yield f'{config.policy_file}: mode = "{policy.mode}": nothing is refused'
        listed = [text for publisher in policy.publishers for text in publisher.identities]
        if any(text.startswith(f"{UID}:") for text in listed):
            for url, path in config.spools.items():
                if count := writable_by_others(path):
                    yield (
                        f"{url}: {plural(count, 'element')} could be changed by other accounts,"
                        f" by its mode: the sender is {ANONYMOUS}, not {UID}:… (mode 0640 at most)"
                    )
        by_broker = [
            publisher.name
            for publisher in policy.publishers
            if any(text.startswith(f"{BROKER}:") for text in publisher.identities)
        ]
        if by_broker and not config.trusted_brokers:
            yield (
                f"{config.policy_file}: {plural(len(by_broker), 'publisher')}, first"
                f" {by_broker[0]}, can't be recognised by identities {BROKER}:…: no broker is in"
                " [consumer] trusted_brokers"
            )


def door_notes(config: ConsumerConfig) -> Iterator[str]:
    """What works, but perhaps not as intended or not for long."""
    door = config.door
    for broker in config.doors:
        is_local = is_loopback(broker.host)
        if door.admits_anonymous(broker):
            who = "every account of this host" if is_local else "anybody"
            yield f"{broker}: {who} may send here without a token or certificate (require_identity)"
        if not (broker.tls or is_local):
            yield f"{broker}: messages and tokens arrive in plain text"
        if broker.tls and door.certificate_file:
            names = host_names_of(door.certificate_file)
            host = socket.getfqdn() if broker.host in WILDCARDS else broker.host
            if not any(fnmatch(host.lower(), name.lower()) for name in names):
                listed = ", ".join(names) or "no host"
                yield f"{broker}: the certificate is for {listed}, not for {host}"
    with suppress(ConfigError):  # reported as a problem
        if door.tokens_file and config.policy_file:
            known = load_tokens(door.tokens_file).names
            policy, prefix = load_policy(config.policy_file), token_identity("")
            for publisher in policy.publishers:
                for text in publisher.identities:
                    name = text.removeprefix(prefix)
                    if text.startswith(prefix) and ANY not in name and name not in known:
                        place = f"{config.policy_file}: {publisher.name}"
                        yield f"{place}: {text}: {door.tokens_file} has no such token"
            for name in sorted(known):
                identity = token_identity(name)
                if policy.publisher_of(identity) is None:
                    yield f"{door.tokens_file}: {name}: no publisher of the policy has {identity}"


def door_trip(broker: Broker, config: ConsumerConfig) -> RoundTrip:
    """Whether the daemon listens here, or could; a problem if another program does."""
    began = time.monotonic()
    proven, problem = None, None
    host = WILDCARDS.get(broker.host, broker.host)
    try:
        for item in listening_sockets(broker.host, broker.port):
            item.close()
        proven = FREE
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            advice = f": {PRIVILEGED}" if error.errno == errno.EACCES else ""
            problem = f"{broker}: {error_text(error)}{advice}"
    if not (proven or problem):
        try:
            proven = _answer(broker, host, config)
        except (OSError, HTTPException) as error:
            text = error_text(error) if isinstance(error, OSError) else str(error)
            problem = f"{broker}: the port is in use, but not by sam-consume ({text})"
    seconds = round(time.monotonic() - began, 3)
    return RoundTrip(str(broker), host, HEALTH, proven, seconds, problem)


def _answer(broker: Broker, host: str, config: ConsumerConfig) -> str:
    """What answers at the port; raises OSError or HTTPException if that is not us."""
    connection = HTTPConnection(host, broker.port, timeout=ANSWER_S)
    if broker.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = HTTPSConnection(host, broker.port, timeout=ANSWER_S, context=context)
    with closing(connection):
        connection.connect()
        served = None
        if isinstance(connection.sock, ssl.SSLSocket):
            served = connection.sock.getpeercert(binary_form=True)
        connection.request("GET", HEALTH)
        answer = connection.getresponse()
        if answer.read(1000) != HEALTHY:
            raise HTTPException(f"it answers {HEALTH} with {answer.status}")
    if served and config.door.certificate_file:
        with suppress(OSError, ValueError):
            if served != first_certificate(config.door.certificate_file):
                return OUTDATED
    return ALIVE
