"""`sam-consume publishers`: which identity said what, or a policy that allows it."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.consumer.settings.load import examine_consumer
from sam_pipeline.schema.identity.policy import load_policy
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy
from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_table
from sam_pipeline.schema.program.moments import moment_argument, utc_now
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.records.classes import built_in, folded
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database
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
  sam-consume publishers                     who sent which records in the last 7 days
  sam-consume publishers --since 30d --json
  sam-consume publishers --suggest > publishers.toml

A line per identity and class shows the records that are stored, their sites, hosts and monitoring
hosts. The last columns count all records of the identity, redelivered ones included.

--suggest prints a policy that allows exactly this, for [consumer] publishers in sam.toml. It only
observes. Delete what a publisher should not say, and replace lists by patterns (*.example.org).

On PostgreSQL, the login needs the role sam_reader.
"""

_MAX_CELL = 60

logger = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=moment_argument,
        default="7d",
        help="records received since then, for example 30d (default: %(default)s)",
    )
    parser.add_argument(
        "--suggest", action="store_true", help="print a policy that allows these records"
    )
    parser.set_defaults(handler=run_publishers)


def run_publishers(args: argparse.Namespace) -> int:
    """Print who said what, as a table, as JSON or as a policy."""
    since: datetime = args.since
    engine = open_database(args, READER)
    said = list(_read(engine, since))
    if args.suggest:
        path = examine_consumer(args).only("publishers").publishers
        policy = load_policy(path) if path else None
        print_lines(
            f"# Received from {format_time(since)} to {format_time(utc_now())}. Delete what a",
            "# publisher should not say, use patterns such as *.example.org, then enforce it.",
            *suggested_policy(said, policy),
        )
        return OK
    counts = counts_since(engine, since)
    with reading(engine) as connection:
        names = policy_names(connection)
    documents = _documents(said, names, counts)
    if args.json:
        print_json(documents)
    else:
        print_lines(*_table(documents))
    return OK


def _read(engine: Engine, since: datetime) -> Iterator[Said]:
    """What was said in each class that the login may read."""
    catalogue = Catalogue(engine)
    views = catalogue.find_all(map(folded, catalogue.names()))
    with reading(engine) as connection:
        homes = homes_of(connection)
    for view in views.values():
        try:
            yield from said_in_class(engine, view, since, homes)
        except DatabaseRefused as error:
            if built_in(view.name):
                raise
            # Readers have no rights on a site's own classes unless they were granted.
            logger.warning("class %s is left out: %s", view.name, error)


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
