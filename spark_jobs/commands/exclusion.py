"""`sam-report exclusion`: add, list and remove what shall not count."""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import OK, CommandParser, text_table, to_json
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.levels import GROUP, METRIC
from sam_pipeline.spark_jobs.runs import exclusions
from sam_pipeline.spark_jobs.runs.exclusions import Entry
from sam_pipeline.spark_jobs.runs.record import who
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.topology.moments import time_argument

EXAMPLES = """\
examples:
  sam-report exclusion add --monitoring-host nagios.example.org --start 2026-11-07T08:00Z \\
      --end 2026-11-07T11:30Z --reason "its network was down"
  sam-report exclusion add --metric org.sam.CE-JobSubmit --site SITE-A --flavour CE \\
      --start 2026-11-07T00:00Z --end 2026-11-08T00:00Z --reason "the probe was wrong"
  sam-report exclusion add --group SITE-A --start 2026-11-07T08:00+01:00 \\
      --end 2026-11-07T12:00+01:00 --reason "agreed with the site"
  sam-report exclusion list
  sam-report exclusion remove 3

Results of a monitoring host don't exist from --start to --end, both included. A metric is EXCLUDED,
a group (a site) UNKNOWN until before --end. The next `sam-report run --due` obeys.
"""
_NAMED = {
    "monitoring_host": "--monitoring-host",
    "metric": "--metric",
    "group": "--group",
    "site": "--site",
    "flavour": "--flavour",
    "host": "--host",
    "reason": "--reason",
    "who": "--who",
}
_COLUMNS = ("id", "what", "start", "end", "reason", "who", "added at")

logger = logging.getLogger(__name__)


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    group = commands.add_parser(
        "exclusion",
        parents=[common],
        help="say what shall not count, and take it back",
        epilog=EXAMPLES,
    )
    actions = group.add_subparsers(metavar="ACTION", required=True)
    command = _action(actions, common, "add", "enter one; its id is printed")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--monitoring-host", metavar="H", help="the results it measured")
    what.add_argument("--metric", metavar="M", help="a metric; of some endpoints, see below")
    what.add_argument("--group", metavar="SITE", help="a whole site")
    for name, metavar in (("site", "S"), ("flavour", "F"), ("host", "H")):
        command.add_argument(f"--{name}", metavar=metavar, help="with --metric: only there")
    for name in ("start", "end"):
        command.add_argument(f"--{name}", required=True, type=time_argument, metavar="TIME")
    command.add_argument("--reason", required=True, metavar="TEXT")
    _add_who(command)
    command.set_defaults(handler=_add)
    command = _action(actions, common, "list", "those in force")
    command.add_argument("--all", dest="everything", action="store_true", help="removed ones, too")
    command.set_defaults(handler=_list)
    command = _action(actions, common, "remove", "take one back; it stays on record")
    command.add_argument("exclusion_id", metavar="ID", type=_id)
    _add_who(command)
    command.set_defaults(handler=_remove)


def _action(actions: Any, common: argparse.ArgumentParser, name: str, words: str) -> CommandParser:
    parser: CommandParser = actions.add_parser(
        name, parents=[common], help=words, description=f"{words}.", epilog=EXAMPLES
    )
    return parser


def _add_who(command: argparse.ArgumentParser) -> None:
    command.add_argument("--who", metavar="NAME", help="who says so (default: your login name)")


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is no id: `exclusion list` shows them")
    return int(text)


def _add(args: argparse.Namespace) -> int:
    asked = _exclusion(args)
    with writing(open_database(args)) as connection:
        exclusion_id = exclusions.add(connection, asked, int(time.time()))
        _warn_of_frozen_days(connection, asked)
    print(to_json({"exclusion_id": exclusion_id}) if args.json else exclusion_id)
    return OK


def _list(args: argparse.Namespace) -> int:
    with reading(open_database(args)) as connection:
        entries = exclusions.entries(connection)
    shown = [each for each in entries if args.everything or each.removed_at is None]
    if args.json:
        print(to_json([_as_json(each) for each in shown]))
    elif shown:
        columns = [*_COLUMNS, *(["removed at", "by"] if args.everything else [])]
        print(text_table(columns, [_cells(each, args.everything) for each in shown]))
    return OK


def _remove(args: argparse.Namespace) -> int:
    by = _named(args, "who") or who()
    with writing(open_database(args)) as connection:
        removed = exclusions.remove(connection, args.exclusion_id, by, int(time.time()))
        _warn_of_frozen_days(connection, removed)
    if args.json:
        print(to_json({"exclusion_id": args.exclusion_id}))
    return OK


def _exclusion(args: argparse.Namespace) -> Exclusion:
    """What the command line says.

    Raises:
        ReportUsage: it makes no sense.
    """
    selectors = [name for name in ("site", "flavour", "host") if getattr(args, name) is not None]
    if selectors and args.metric is None:
        given = ", ".join(_NAMED[name] for name in selectors)
        raise ReportUsage(f"{given}: only with --metric, to exclude it at some endpoints")
    start, end = (int(parse_time(each).timestamp()) for each in (args.start, args.end))
    if end <= start:
        raise ReportUsage(f"--end {args.end} is not after --start {args.start}")
    return Exclusion(
        exclusion_id=0,
        kind=_kind(args),
        monitoring_host=_named(args, "monitoring_host"),
        metric_name=_named(args, "metric"),
        site=_named(args, "group") or _named(args, "site"),
        service_flavour=_named(args, "flavour"),
        # Host names of results and endpoints are stored like this.
        host_name=_named(args, "host").rstrip(".").lower(),
        start=start,
        end=end,
        reason=_named(args, "reason"),
        who=_named(args, "who") or who(),
    )


def _kind(args: argparse.Namespace) -> str:
    if args.metric is not None:
        return METRIC
    return MONITORING_HOST if args.group is None else GROUP


def _named(args: argparse.Namespace, name: str) -> str:
    """A value without blanks around it; '' where the option wasn't given.

    Raises:
        ReportUsage: it was given, but says nothing, or nothing that can be stored.
    """
    value: str | None = getattr(args, name)
    if value is not None and not value.strip():
        raise ReportUsage(f"{_NAMED[name]} is empty")
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise ReportUsage(f"{_NAMED[name]} is no UTF-8") from None
    return (value or "").strip()


def _warn_of_frozen_days(connection: Connection, exclusion: Exclusion) -> None:
    kept = exclusions.frozen_before(connection, exclusion)
    if kept is not None:
        logger.warning("days before %s stay as they are: their results were pruned", kept)


def _as_json(entry: Entry) -> dict[str, object]:
    return {
        "exclusion_id": entry.exclusion.exclusion_id,
        "kind": entry.exclusion.kind,
        "monitoring_host": entry.exclusion.monitoring_host,
        "metric_name": entry.exclusion.metric_name,
        "site": entry.exclusion.site,
        "service_flavour": entry.exclusion.service_flavour,
        "host_name": entry.exclusion.host_name,
        "start_time": moment(entry.exclusion.start),
        "end_time": moment(entry.exclusion.end),
        "reason": entry.exclusion.reason,
        "who": entry.exclusion.who,
        "added_at": entry.added_at,
        "removed_at": entry.removed_at,
        "removed_by": entry.removed_by,
    }


def _cells(entry: Entry, everything: bool) -> list[object]:
    one = entry.exclusion
    removed_at = None if entry.removed_at is None else format_time(entry.removed_at)
    return [
        one.exclusion_id,
        " ".join([one.kind, *filter(None, _selectors(one))]),
        format_time(moment(one.start)),
        format_time(moment(one.end)),
        one.reason.replace("\n", " "),
        one.who,
        format_time(entry.added_at),
        *([removed_at, entry.removed_by] if everything else []),
    ]


def _selectors(one: Exclusion) -> tuple[str, ...]:
    return (one.monitoring_host, one.metric_name, one.site, one.service_flavour, one.host_name)
