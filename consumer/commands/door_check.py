"""What `sam-consume check` reports of the doors: their ports, certificates, tokens and policy."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from fnmatch import fnmatch
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from sam_pipeline.consumer.process.listening import listening_sockets
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.door.access import load_credentials
from sam_pipeline.consumer.sources.door.answers import HEALTH, HEALTHY
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import token_identity
from sam_pipeline.schema.identity.policy import ANY, Policy, load_policy
from sam_pipeline.schema.identity.tokens import Tokens, load_tokens
from sam_pipeline.schema.net.broker_url import Broker, is_loopback
from sam_pipeline.schema.net.certificate import (
    CertificateFinding,
    examine_certificates,
    first_certificate,
    host_names_of,
)
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.round_trip import RoundTrip

ANSWER_S = 5.0
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean every one of this host, and how to reach them from here."""
ALIVE = "listening"
FREE = "nothing listens here: the port is free"
OUTDATED = "listening with an older certificate than certificate_file has now: reload the daemon"
"""What a trip proves."""
PRIVILEGED = "ports below 1024 are opened by systemd (sam-door.socket)"


def door_problems(config: ConsumerConfig) -> Iterator[str]:
    """Why no message could arrive over HTTP."""
    try:
        load_credentials(config)
    except ConfigError as error:
        yield from error.problems
    yield from (f"[consumer.door] {found.text}" for found in _dated(config) if found.is_problem)


def door_notes(config: ConsumerConfig) -> Iterator[str]:
    """What works, but perhaps not as intended or not for long."""
    door = config.door
    yield from (f"[consumer.door] {found.text}" for found in _dated(config) if not found.is_problem)
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
        if door.tokens_file and config.publishers:
            tokens, policy = load_tokens(door.tokens_file), load_policy(config.publishers)
            yield from _differences(tokens, policy, config)


def _differences(tokens: Tokens, policy: Policy, config: ConsumerConfig) -> Iterator[str]:
    """Tokens that the policy does not know, and publishers without their token."""
    prefix = token_identity("")
    for publisher in policy.publishers:
        for text in publisher.identities:
            name = text[len(prefix) :]
            if text.startswith(prefix) and ANY not in name and name not in tokens.names:
                file = config.door.tokens_file
                yield f"{config.publishers}: {publisher.name}: {text}: {file} has no such token"
    for name in sorted(tokens.names):
        if policy.publisher_of(token_identity(name)) is None:
            text = f"{name}: no publisher of the policy has {token_identity(name)}"
            yield f"{config.door.tokens_file}: {text}"


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


def _dated(config: ConsumerConfig) -> Iterator[CertificateFinding]:
    door = config.door
    now = datetime.now(UTC)
    return examine_certificates(door.certificate_file, door.client_ca_file, door.crl_file, now)
