"""`sam-db downtime`: announce, end, cancel and list downtimes."""

from __future__ import annotations

import argparse
import logging
import secrets
from datetime import UTC, datetime
from functools import partial

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.command import (
    OK,
    Verb,
    add_verbs,
    option,
    print_done,
    print_json,
    print_table,
    text_argument,
)
from sam_pipeline.schema.program.moments import day_argument, time_argument
from sam_pipeline.schema.records.classes import DOWNTIME
from sam_pipeline.sql.commands.class_ import print_history
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.loading.catalogue import SOURCE
from sam_pipeline.sql.topology.downtime import (
    ChangedDowntimes,
    announce,
    announcement,
    cancel,
    list_downtimes,
    unknown_names,
)
from sam_pipeline.sql.topology.view_rows import Row, day_end, day_start, history, wire_now

EXAMPLES = """\
examples:
  sam-db downtime add --site EXAMPLE-SITE --start 2026-11-20T08:00Z --end 2026-11-20T12:00Z \\
      --reason "power cut"
  sam-db downtime list --site EXAMPLE-SITE --from 2026-11-01 --to 2026-11-30
  sam-db downtime list --site EXAMPLE-SITE --all --history
  sam-db downtime end local-20261121-1a2b3c4d --at 2026-11-20T10:30Z --reason "power is back"
  sam-db downtime cancel local-20261121-1a2b3c4d --reason "wrong site"

Times need a zone: 08:00Z is UTC, and 09:00+01:00 is the same moment. A change in the past marks the
days it affects, and the next `sam-report run --due` recomputes their reports.
"""

NAMES = {
    "downtime_id": "downtimeId",
    "site": "siteName",
    "host_name": "hostName",
    "service_flavour": "serviceFlavour",
    "start_time": "startTime",
    "end_time": "endTime",
    "classification": "classification",
    "severity": "severity",
    "announced_at": "announcedAt",
    "description": "description",
}
"""Attributes of the class by their names in the output."""

logger = logging.getLogger(__name__)


def add_options(noun: argparse.ArgumentParser) -> None:
    text, time = partial(option, type=text_argument), partial(option, type=time_argument)
    day = partial(option, type=day_argument, metavar="DAY")
    ids = text("ids", metavar="ID", nargs="+", help="id of a downtime")
    who = text("--who", metavar="NAME", help="who gives the reason (default: your login name)")
    reason = partial(text, "--reason", metavar="TEXT", help="why; becomes part of the description")
    add_verbs(
        noun,
        EXAMPLES,
        add=Verb(
            "announce a downtime, or move an existing one (--id)",
            run_add,
            text("--site", required=True, metavar="S", help="site of the downtime"),
            text("--host", metavar="H", help="default: the whole site"),
            text("--flavour", metavar="F", help="default: all services of the host or site"),
            time("--start", required=True, metavar="TIME", help="when it starts"),
            time("--end", required=True, metavar="TIME", help="when it ends (exclusive)"),
            text("--classification", default="SCHEDULED", metavar="C", help="default: SCHEDULED"),
            text("--severity", default="OUTAGE", metavar="S", help="default: OUTAGE"),
            text("--id", metavar="ID", help="id of the downtime (default: a new one)"),
            reason(required=True),
            who,
        ),
        end=Verb(
            "end downtimes early",
            run_end,
            ids,
            time("--at", default="now", metavar="TIME", help="when they end (default: now)"),
            reason(),
            who,
        ),
        cancel=Verb("cancel downtimes, also past ones", run_end, ids, reason(), who),
        list=Verb(
            "list current and future downtimes, or those in a range of days",
            run_list,
            text("--site", metavar="S", help="only downtimes of this site"),
            day("--from", "--since", dest="first", help="first UTC day, for example 30d"),
            day("--to", dest="last", help="last UTC day, included"),
            option("--all", action="store_true", help="include past and cancelled downtimes"),
            option("--history", action="store_true", help="list all statements about them"),
        ),
    )


def run_add(args: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    if args.end <= args.start:
        args.usage_error(f"--end {args.end} is not after --start {args.start}")
    fields = {
        "downtimeId": args.id or f"local-{now:%Y%m%d}-{secrets.token_hex(4)}",
        "siteName": args.site,
        "hostName": args.host or "",
        "serviceFlavour": args.flavour or "",
        "startTime": args.start,
        "endTime": args.end,
        "classification": args.classification,
        "severity": args.severity,
        "description": _signed(args.reason, args.who),
    }
    try:
        rows = announcement(fields, now)
    except RecordRefused as error:
        args.usage_error(error.text)
    engine = open_database(args)
    for warning in unknown_names(engine, rows):
        logger.warning("%s; announced anyway", warning)
    _print_changed(args, announce(engine, rows, now))
    return OK


def run_end(args: argparse.Namespace) -> int:
    """End downtimes at a time, or without one cancel them."""
    at = getattr(args, "at", None)
    reason = ": ".join(filter(None, ["ended" if at else "cancelled", args.reason]))
    ids, why = list(dict.fromkeys(args.ids)), _signed(reason, args.who)
    changed = cancel(open_database(args), ids, at, why, datetime.now(UTC))
    for downtime_id in args.ids:
        if all(change.after["downtimeId"] != downtime_id for change in changed.changes):
            logger.warning("downtime %s was already cancelled", downtime_id)
    _print_changed(args, changed)
    return OK


def run_list(args: argparse.Namespace) -> int:
    first, last = args.first, args.last
    if first and last and last < first:
        args.usage_error(f"--to {last} is before --from {first}")
    start = day_start(first) if first else "" if last or args.all else wire_now()
    end = day_end(last) if last else "9999"
    engine = open_database(args)
    if args.history:
        with reading(engine) as connection:
            said = history(connection, DOWNTIME, args.site)
        within = [row for row in said if row["startTime"] < end and row["endTime"] >= start]
        print_history(args, DOWNTIME, within)
        return OK
    downtimes = [
        _downtime_document(row)
        for row in list_downtimes(engine)
        if args.site in (None, row.get("siteName"))
        and row["startTime"] < end
        and (row["endTime"] > start or (args.all and row["startTime"] >= start))
        and (args.all or row["startTime"] < row["endTime"])
    ]
    if args.json:
        print_json(downtimes)
        return OK
    cells = [
        [
            (name if value else "") if isinstance(value, bool) else str(value).replace("\n", " ")
            for name, value in downtime.items()
        ]
        for downtime in downtimes
    ]
    print_table([*NAMES, "late", "cancelled", "source"], cells, "no downtimes")
    return OK


def _signed(reason: str, who: str | None) -> str:
    """The reason and who gives it, as stored in the description: `power cut (jane)`."""
    return f"{reason} ({who or login_name()})"


def _print_changed(args: argparse.Namespace, changed: ChangedDowntimes) -> None:
    if args.json:
        downtimes = [
            {**_downtime_document(change.after), "moved": change.before is not None}
            for change in changed.changes
        ]
        print_json({"downtimes": downtimes, "due_days": changed.due_days})
        return
    print_done(args, *dict.fromkeys(change.after["downtimeId"] for change in changed.changes))
    if changed.due_days:
        print_done(args, f"due: {' '.join(map(str, changed.due_days))}")


def _downtime_document(row: Row) -> dict[str, object]:
    """A downtime for output; an empty host or flavour means all of them."""
    return {
        **{name: row.get(key, "") for name, key in NAMES.items()},
        "late": row.get("announcedAt", "") > row["startTime"],
        "cancelled": row["endTime"] <= row["startTime"],
        "source": row[SOURCE],
    }
