"""`sam-db downtime`: announce, cancel and list downtimes by hand."""

from __future__ import annotations

import argparse
import getpass
import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.command import OK, CommandParser, text_table, to_json
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.topology.downtime import (
    Changed,
    announce,
    announcement,
    cancel,
    list_downtimes,
    new_id,
    signed,
    unknown_names,
)
from sam_pipeline.sql.topology.moments import (
    day_argument,
    day_end,
    day_start,
    time_argument,
    wire_now,
)
from sam_pipeline.sql.topology.view_rows import Row, source_of

EXAMPLES = """\
examples:
  sam-db downtime add --site EXAMPLE-SITE --start 2026-11-20T08:00Z --end 2026-11-20T12:00Z \\
      --reason "power cut"
  sam-db downtime list --site EXAMPLE-SITE --from 2026-11-01 --to 2026-11-30
  sam-db downtime cancel local-20261121-1a2b3c4d --reason "it was another site"

Times need a zone: 08:00Z is UTC, 09:00+01:00 the same moment. A change in the past marks the days
it touches; the next `sam-report run --due` computes them again.
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
    "description": "description",
}
"""Of what is printed: by the attributes of the class."""

logger = logging.getLogger(__name__)


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `downtime` and what can be done with them."""
    group = commands.add_parser(
        "downtime",
        parents=[common],
        help="announce, cancel and list downtimes by hand",
        description="Announce, cancel and list downtimes by hand, in the past too.",
        epilog=EXAMPLES,
    )
    actions = group.add_subparsers(metavar="ACTION", required=True)
    command = _add(actions, common, "add", "announce one, or move one (--id of a known one)")
    _add_announcement(command)
    command.set_defaults(handler=run_add, usage_error=command.error)
    command = _add(actions, common, "cancel", "make them never count, or end them early (--end)")
    command.add_argument("ids", metavar="ID", nargs="+")
    command.add_argument("--end", type=time_argument, metavar="TIME", help="count until then")
    _add_why(command, required=False)
    command.set_defaults(handler=run_cancel)
    command = _add(actions, common, "list", "those that run or are to come, or those of some days")
    command.add_argument("--site", metavar="S", help="only this site's")
    for name, words in (("from", "first UTC day"), ("to", "last UTC day, included")):
        command.add_argument(f"--{name}", dest=name, type=day_argument, metavar="D", help=words)
    command.add_argument(
        "--all", dest="everything", action="store_true", help="past and cancelled ones, too"
    )
    command.set_defaults(handler=run_list, usage_error=command.error)


def run_add(args: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    if args.end <= args.start:
        args.usage_error(f"--end {args.end} is not after --start {args.start}")
    for name in ("site", "reason", "id"):
        if getattr(args, name) is not None and not getattr(args, name).strip():
            args.usage_error(f"--{name} is empty")
    fields = {
        "downtimeId": new_id(now) if args.id is None else args.id,
        "siteName": args.site,
        "hostName": args.host or "",
        "serviceFlavour": args.flavour or "",
        "startTime": args.start,
        "endTime": args.end,
        "classification": args.classification,
        "severity": args.severity,
        "description": signed(args.reason.strip(), args.who or _login_name()),
    }
    try:
        rows = announcement(fields, now)
    except RecordRefused as error:
        args.usage_error(error.text)
    engine = open_database(args)
    for words in unknown_names(engine, rows):
        logger.warning("%s: announced all the same", words)
    _print_changed(args, announce(engine, rows, now))
    return OK


def run_cancel(args: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    words = ": ".join(filter(None, ["ended" if args.end else "cancelled", args.reason.strip()]))
    why = signed(words, args.who or _login_name())
    changed = cancel(open_database(args), list(dict.fromkeys(args.ids)), args.end, why, now)
    for downtime_id in args.ids:
        if all(each.after["downtimeId"] != downtime_id for each in changed.changes):
            logger.warning("downtime %s was cancelled already", downtime_id)
    _print_changed(args, changed)
    return OK


def run_list(args: argparse.Namespace) -> int:
    first, last = getattr(args, "from"), args.to
    if first and last and last < first:
        args.usage_error(f"--to {last} lies before --from {first}")
    start = day_start(first) if first else "" if last or args.everything else wire_now()
    end = day_end(last) if last else "9999"
    rows = [
        row
        for row in list_downtimes(open_database(args))
        if args.site in (None, row.get("siteName"))
        and row["startTime"] < end
        and (row["endTime"] > start or (args.everything and row["startTime"] >= start))
        and (args.everything or row["startTime"] < row["endTime"])
    ]
    _print_list(args, rows)
    return OK


def _add(actions: Any, common: argparse.ArgumentParser, name: str, words: str) -> CommandParser:
    parser: CommandParser = actions.add_parser(
        name, parents=[common], help=words, description=f"{words}.", epilog=EXAMPLES
    )
    return parser


def _add_announcement(command: argparse.ArgumentParser) -> None:
    command.add_argument("--site", required=True, metavar="S")
    command.add_argument("--host", metavar="H", help="without it: the whole site")
    command.add_argument("--flavour", metavar="F", help="without it: all of the host, or site")
    for name in ("start", "end"):
        command.add_argument(f"--{name}", required=True, type=time_argument, metavar="TIME")
    command.add_argument("--classification", default="SCHEDULED", help="default: SCHEDULED")
    command.add_argument("--severity", default="OUTAGE", help="default: OUTAGE")
    command.add_argument("--id", metavar="ID", help="default: a new one, which is printed")
    _add_why(command, required=True)


def _add_why(command: argparse.ArgumentParser, required: bool) -> None:
    command.add_argument("--reason", required=required, metavar="TEXT", default="")
    command.add_argument("--who", metavar="NAME", help="who says so (default: your login name)")


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def _print_changed(args: argparse.Namespace, changed: Changed) -> None:
    if args.json:
        downtimes = [
            {**_facts(each.after), "moved": each.before is not None} for each in changed.changes
        ]
        print(to_json({"downtimes": downtimes, "due_days": changed.due_days}))
        return
    for downtime_id in dict.fromkeys(each.after["downtimeId"] for each in changed.changes):
        print(downtime_id)
    if changed.due_days:
        print(f"due: {' '.join(map(str, changed.due_days))}")


def _print_list(args: argparse.Namespace, rows: Iterable[Row]) -> None:
    facts = [_facts(row) for row in rows]
    if args.json:
        print(to_json(facts))
    else:
        columns = [*NAMES, "cancelled", "source"]
        cells = [[_cell(each[name]) for name in columns] for each in facts]
        print(text_table(columns, cells))


def _facts(row: Row) -> dict[str, object]:
    """As JSON; "" stands for all of them."""
    return {
        **{name: row.get(key, "") for name, key in NAMES.items()},
        "cancelled": row["endTime"] <= row["startTime"],
        "source": source_of(row),
    }


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "cancelled" if value else ""
    return str(value).replace("\n", " ")
