"""`sam-consume sender list`: which identity said what, or a policy that allows it."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.consumer.settings.config import examine_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import certificate_identity
from sam_pipeline.schema.identity.policy import load_policy
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy
from sam_pipeline.schema.net.certificate import certificates, is_proxy, subject_in
from sam_pipeline.schema.program.command import OK, add_action, print_json, print_lines, text_table
from sam_pipeline.schema.program.moments import moment_argument, utc_now
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.records.classes import built_in, folded
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.roles import READER
from sam_pipeline.sql.errors import DatabaseRefused
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.said import (
    Judged,
    counts_since,
    homes_of,
    policy_names,
    said_in_class,
)

EXAMPLES = """\
examples:
  sam-consume sender list                     who sent which records in the last 7 days
  sam-consume sender list --since 30d --json
  sam-consume sender suggest > publishers.toml
  sam-consume sender identity nagios1.pem

`list` has a line per identity and class with the records that are stored, their sites, hosts and
monitoring hosts. The last columns count all records of the identity, redelivered ones included.

`suggest` prints a policy that allows exactly this, for [consumer] policy_file in sam.toml. It only
observes. Delete what a publisher should not say, and replace lists by patterns (*.example.org).

`identity` prints the identity of a certificate as a policy lists it and as records have it. An
X.509 proxy has the identity of its user, whose certificate is in the same file.

On PostgreSQL, the login of `list` and `suggest` needs the role sam_reader.
"""

_MAX_CELL = 60

logger = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = partial(add_action, parser.add_subparsers(), epilog=EXAMPLES)
    for name, handler, text in (
        ("list", run_list, "list the records that each identity sent"),
        ("suggest", run_suggest, "print a policy that allows these records"),
    ):
        add(name, handler, text).add_argument(
            "--since",
            metavar="TIME",
            type=moment_argument,
            default="7d",
            help="records received since then, for example 30d (default: %(default)s)",
        )
    action = add("identity", run_identity, "print the identity that a certificate gives its holder")
    action.add_argument("file", type=Path, metavar="FILE", help="a certificate in PEM format")


def run_list(args: argparse.Namespace) -> int:
    """Print who sent what, as a table or as JSON."""
    engine = open_database(args, READER)
    with reading(engine) as connection:
        names = policy_names(connection)
    documents = _documents(_read(engine, args.since), names, counts_since(engine, args.since))
    if args.json:
        print_json(documents)
    else:
        empty = [f"no records were received since {format_time(args.since)}"]
        print_lines(*_table(documents) if documents else empty)
    return OK


def run_suggest(args: argparse.Namespace) -> int:
    """Print a policy that allows what was sent."""
    path = examine_consumer(args).only("policy_file").policy_file
    said = _read(open_database(args, READER), args.since)
    print_lines(
        f"# Received from {format_time(args.since)} to {format_time(utc_now())}. Delete what a",
        "# publisher should not say, use patterns such as *.example.org, then enforce it.",
        *suggested_policy(said, load_policy(path) if path else None),
    )
    return OK


def run_identity(args: argparse.Namespace) -> int:
    """Print the identity of a certificate."""
    subject = None
    with suppress(OSError, ValueError):
        users = (one for one in certificates(args.file) if not is_proxy(one))
        subject = subject_in(next(users, b""))
    if subject is None:
        raise ConfigError([f"{args.file}: can't be read, or has no certificate of a user as PEM"])
    identity = certificate_identity(subject)
    if args.json:
        print_json({"file": str(args.file), "identity": identity})
    else:
        print_lines(identity)
    return OK


def _read(engine: Engine, since: datetime) -> list[Said]:
    """What was said in each class that the login may read."""
    catalogue = Catalogue(engine)
    views = catalogue.find_all(map(folded, catalogue.names()))
    with reading(engine) as connection:
        homes = homes_of(connection)
    said: list[Said] = []
    for view in views.values():
        try:
            said += said_in_class(engine, view, since, homes)
        except DatabaseRefused as error:
            if built_in(view.name):
                raise
            # Readers have no rights on a site's own classes unless they were granted.
            logger.warning("class %s is left out: %s", view.name, error)
    return said


def _documents(
    said: Iterable[Said], names: Mapping[str, str], counts: Mapping[str, Judged]
) -> list[dict[str, Any]]:
    """Each identity with its classes; one of which nothing is stored has none."""
    documents: dict[str, dict[str, Any]] = {
        identity: {
            "publisher": identity,
            "name": names.get(identity),
            **counts.get(identity, Judged(0, 0))._asdict(),
            "classes": [],
        }
        for identity in sorted({*counts, *(one.identity for one in said)})
    }
    for one in sorted(said, key=attrgetter("message_class")):
        documents[one.identity]["classes"].append(
            {
                "class": one.message_class,
                "records": one.records,
                "first_received": one.first,
                "last_received": one.last,
                "sites": sorted(one.sites),
                "hosts": sorted(one.hosts),
                "new_hosts": sorted(one.new_hosts),
                "monitoring_hosts": sorted(filter(None, one.monitoring_hosts)),
            }
        )
    return list(documents.values())


def _table(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each identity and class; with a column for names of the policy if any has one."""
    names = any(document["name"] for document in documents)
    rows: list[list[object]] = []
    for document in documents:
        identity = [document["publisher"], *[document["name"]] * names]
        totals = [document["accepted"], document["refused"]]
        for of_class in document["classes"] or [{}]:
            sites, hosts, monitoring_hosts = (
                of_class.get(name, ()) for name in ("sites", "hosts", "monitoring_hosts")
            )
            rows.append(
                [
                    *identity,
                    of_class.get("class"),
                    of_class.get("records"),
                    _listed(sites),
                    len(hosts) if of_class else None,
                    _listed(monitoring_hosts),
                    format_time(last) if (last := of_class.get("last_received")) else "",
                    *totals,
                ]
            )
            identity, totals = [""] * len(identity), [None, None]
    columns = ["class", "records", "sites", "hosts", "monitoring hosts", "last received"]
    head = ["publisher", *["name"] * names, *columns, "accepted", "refused"]
    return text_table(head, rows)


def _listed(names: Sequence[str]) -> str:
    return one_line(", ".join(names), _MAX_CELL)
