"""The files of a consumer, read and checked at its start, at a reload and by `check`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sam_pipeline.consumer.settings.config import ConsumerConfig, load_consumer
from sam_pipeline.consumer.sources.door.access import Credentials, load_credentials
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.policy import Policy, usable_policy
from sam_pipeline.schema.net.broker import SPOOL
from sam_pipeline.schema.net.certificate import CertificateFinding, examine_certificates
from sam_pipeline.schema.net.tls import server_context, tls_context
from sam_pipeline.schema.secret_file import read_secret
from sam_pipeline.schema.settings.broker import secret_of
from sam_pipeline.schema.spool.disk import unusable
from sam_pipeline.schema.spool.inspection import unusable_queue

NO_EFFECT = "it has no effect without certificate_file"


class Setup(NamedTuple):
    """The content of all files, as of the start or a reload."""

    config: ConsumerConfig
    policy: Policy | None
    credentials: Credentials
    database_url: str
    """Empty for a relay."""
    policy_read: Mapping[str, str] = MappingProxyType({})
    """What the log of operations gets of a policy that was read again."""


def read_settings(args: argparse.Namespace) -> Setup:
    """Read all files; raises ConfigError."""
    config = load_consumer(args, args.instance)
    policy = usable_policy(config.policy_file)
    url = ""
    if not config.targets:
        from sam_pipeline.sql.database.config import database_url

        url = database_url(args)
    return Setup(config, policy, load_credentials(config), url)


def problems_of_files(config: ConsumerConfig) -> Iterator[str]:
    """The problems of directories, certificates, secrets and the policy."""
    if problem := unusable(config.state_directory):
        yield f"state directory {problem}"
    for target in config.targets:
        path = Path(target.path) if target.kind == SPOOL else config.rejected_directory
        if problem := unusable_queue(path, writes=True, shared=target.shared):
            yield f"[consumer] to: {problem}"
    for url, path in config.spools.items():
        if problem := unusable_queue(path):
            yield f"{url}: {problem}"
    if config.key_file and not config.certificate_file:
        yield f"[consumer] key_file: {NO_EFFECT}"
    for table in config.broker:
        if table.key_file and not table.certificate_file:
            yield f"[consumer] broker {table.broker}: key_file: {NO_EFFECT}"
    try:
        usable_policy(config.policy_file)
    except ConfigError as error:
        yield from error.problems
    try:
        secret_of(config.SECTION, "password", config.password_file).read()
        for broker in (*config.network_brokers, *config.targets):
            reached = config.target_of(broker)
            reached.password.read()
            reached.find_proxy()
            if broker.tls:
                tls_context(reached.tls_files)
    except ConfigError as error:
        yield from (f"[consumer] {problem}" for problem in error.problems)
    yield from (found.text for found in dated_files(config) if found.is_problem)
    if config.metrics_key_file and not config.metrics_certificate_file:
        yield "[consumer] metrics_key_file: it needs metrics_certificate_file"
    try:
        if config.metrics_certificate_file:
            server_context(config.metrics_tls_files)
        if config.metrics_token_file:
            read_secret(config.metrics_token_file)
    except ConfigError as error:
        yield from (f"[consumer] metrics: {problem}" for problem in error.problems)
    try:
        load_credentials(config)
    except ConfigError as error:
        yield from error.problems


def dated_files(config: ConsumerConfig) -> Iterator[CertificateFinding]:
    """The certificates and revocation lists that are out of date, or soon will be."""
    files = [
        ("consumer", one.certificate_file, one.ca_file, one.crl_file)
        for one in (config, *config.broker)
    ]
    files.append(("consumer", config.metrics_certificate_file, None, None))
    if config.doors:
        door = config.door
        files.append(("consumer.door", door.certificate_file, door.client_ca_file, door.crl_file))
    for table, ours, authorities, lists in files:
        for found in examine_certificates(ours, authorities, lists, datetime.now(UTC)):
            yield found._replace(text=f"[{table}] {found.text}")
