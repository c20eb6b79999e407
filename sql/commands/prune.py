"""`sam-db prune`: remove whole days of results, details, statements, audit rows, dead letters."""

from __future__ import annotations

import argparse
import logging
from dataclasses import asdict, replace
from datetime import UTC, date, datetime

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.schema.program.moments import days_argument
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.settings.section import load
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.archive.record import kept_back
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.removal.prune import PruneConfig, bounds_of, prune

KINDS = {
    "results": "results",
    "details": "details",
    "statements": "statements",
    "audit": "audit",
    "dead_letters": "dead letters settled",
}
"""By the name in `Bounds` and `Pruned`: the label in the output."""

EXAMPLES = """\
examples:
  sam-db prune --dry-run
  sam-db prune --keep-results 400d --keep-details 60d
  sam-db prune --keep-audit 90d --keep-dead-letters 90d --json

Without an option, the ages of the section [prune] of sam.toml apply. With options, only the kinds
of data that they name are pruned. Ages are whole UTC days before today. Statements about endpoints,
groups, contacts and downtimes are only removed if they no longer hold, and lie before the first day
that has all results. Reports of the pruned days are kept, and `sam-report run` refuses to recompute
them. If a prune is interrupted, the next one completes it.

With an archive (section [archive] of sam.toml), results and details are kept from the first day on
that is not in it, has changed since, or was not verified (`sam-db archive verify --due`).
"""

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    for name, key in PruneConfig.KEYS.items():
        command.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="AGE",
            type=days_argument,  # at least 1d: yesterday's report needs yesterday's results
            help=f"keep {key.meaning} up to this age, such as 400d",
        )
    command.add_argument(
        "--dry-run", action="store_true", help="remove nothing; print what would be removed"
    )
    command.set_defaults(handler=run_prune)


def run_prune(args: argparse.Namespace) -> int:
    ages = {name: getattr(args, name) for name in PruneConfig.KEYS}
    if not any(ages.values()):
        config = load(PruneConfig, args.config)
        ages = {name: getattr(config, name) for name in ages}
    engine = open_database(args)
    bounds = bounds_of(datetime.now(UTC).date(), **ages)
    wanted = [bound for bound in (bounds.results, bounds.details) if bound]
    store, kept = load_archive(args).open(), dict[date, str]()
    if store is not None and wanted:
        if not args.dry_run:
            fold_all(engine)  # marks the days of results that were loaded just now
        kept = kept_back(engine, store, max(wanted))
    if kept:
        # Days are pruned in order: a report begins with the last results of the day before.
        first = min(kept)
        bounds = replace(
            bounds,
            results=bounds.results and min(bounds.results, first),
            details=bounds.details and min(bounds.details, first),
        )
    for day, reason in kept.items():
        logger.warning("kept back: %s %s", day, reason)
    progress = Progress()
    pruned = prune(engine, bounds, dry_run=args.dry_run, on_progress=progress.draw)
    progress.end()
    if pruned.left:
        logger.warning("locked; the next prune will remove them: %s", ", ".join(pruned.left))
    if pruned.not_dropped:
        names = ", ".join(pruned.not_dropped)
        logger.warning("emptied, but in use; the next prune will drop them: %s", names)
    verb = "would remove" if args.dry_run else "removed"
    document: dict[str, object] = {"database": name_of(engine), "dry_run": args.dry_run}
    for name, label in KINDS.items():
        before, removed = getattr(bounds, name), getattr(pruned, name)
        document[name] = {"before": before, **asdict(removed)}
        if before and not args.json:
            amount = plural(removed.rows, "row")
            if removed.partitions is not None:
                amount = f"{plural(removed.partitions, 'day')}, {removed.bytes} bytes"
            line = f"{name_of(engine)}: {verb} {label} before {before}: {amount}"
            print_done(args, line, success=not args.dry_run)
    if args.json:
        document["kept_back"] = [{"day": day, "reason": reason} for day, reason in kept.items()]
        print_json({**document, "left": pruned.left, "not_dropped": pruned.not_dropped})
    return OK
