"""`sam-db prune`: remove whole days of results and of other things that are old enough."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.pruning.prune import prune
from sam_pipeline.sql.pruning.task import Bounds, Pruned, Removed, bounds_of
from sam_pipeline.sql.topology.moments import age_argument

KINDS = {
    "results": "their results",
    "details": "the details of their results",
    "audit": "their rows of load_audit, a row for each batch that was loaded",
    "dead-letters": "the dead letters that were replayed or dropped on them",
}
"""What has an age of its own, and what is kept of a day."""

EXAMPLES = """\
examples:
  sam-db prune --keep-results 400d --keep-details 60d
  sam-db prune --keep-results 400d --dry-run
  sam-db prune --keep-details 60d --json
  sam-db prune --keep-audit 90d --keep-dead-letters 90d

Whole UTC days before today are counted. Reports of the days pruned stay as they are: `sam-report
run` refuses those days. Stopped at any moment, the next prune completes it.
"""

logger = logging.getLogger(__name__)


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `prune`."""
    words = "remove whole days of results, details and audit that are old enough"
    command = commands.add_parser(
        "prune",
        parents=[common],
        help=words,
        description=f"{words.capitalize()}.",
        epilog=EXAMPLES,
    )
    for kind, kept in KINDS.items():
        command.add_argument(
            f"--keep-{kind}",
            metavar="AGE",
            type=age_argument,  # at least 1d: yesterday's report is made of yesterday's results
            help=f"how many days before today keep {kept}, as in 400d",
        )
    command.add_argument("--dry-run", action="store_true", help="tell what would go, and stop")
    command.set_defaults(handler=run_prune, usage_error=command.error)


def run_prune(args: argparse.Namespace) -> int:
    ages = (args.keep_results, args.keep_details, args.keep_audit, args.keep_dead_letters)
    if not any(ages):
        args.usage_error("say what to keep: --keep-results 400d, --keep-details 60d, or others")
    engine = open_database(args)
    bounds = bounds_of(datetime.now(UTC).date(), *ages)
    progress = Progress()
    pruned = prune(engine, bounds, dry_run=args.dry_run, told=progress.draw)
    progress.end()
    _warn(pruned)
    if args.json:
        print(to_json(_document(name_of(engine), bounds, pruned, args.dry_run)))
    else:
        for line in _lines(bounds, pruned, args.dry_run):
            print(f"{name_of(engine)}: {line}")
    return OK


def _document(database: str, bounds: Bounds, pruned: Pruned, dry_run: bool) -> dict[str, object]:
    return {
        "database": database,
        "dry_run": dry_run,
        "results": {"before": bounds.results, **asdict(pruned.results)},
        "details": {"before": bounds.details, **asdict(pruned.details)},
        "audit": {"before": bounds.audit, **asdict(pruned.audit)},
        "dead_letters": {"before": bounds.dead_letters, **asdict(pruned.dead_letters)},
        "left": list(pruned.left),
        "not_dropped": list(pruned.not_dropped),
    }


def _lines(bounds: Bounds, pruned: Pruned, dry_run: bool) -> Iterator[str]:
    verb = "would remove" if dry_run else "removed"
    if bounds.results:
        yield f"{verb} results before {bounds.results}: {_amount(pruned.results)}"
    if bounds.details:
        yield f"{verb} details before {bounds.details}: {_amount(pruned.details)}"
    if bounds.audit:
        yield f"{verb} audit before {bounds.audit}: {_amount(pruned.audit)}"
    if bounds.dead_letters:
        settled = f"dead letters settled before {bounds.dead_letters}"
        yield f"{verb} {settled}: {_amount(pruned.dead_letters)}"


def _amount(removed: Removed) -> str:
    if removed.partitions is None:
        return f"{removed.rows} rows"
    return f"{removed.partitions} days, {removed.bytes} bytes"


def _warn(pruned: Pruned) -> None:
    if pruned.left:
        names = ", ".join(pruned.left)
        logger.warning("in use, left for the next prune: %s", names)
    if pruned.not_dropped:
        names = ", ".join(pruned.not_dropped)
        logger.warning("emptied, but the table is in use; the next prune drops: %s", names)
