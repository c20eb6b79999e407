"""`sam-db archive`: write closed days to the archive, list, verify, restore and clean it."""

from __future__ import annotations

import argparse
import logging
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    Verb,
    add_verbs,
    option,
    print_done,
    print_json,
    print_table,
)
from sam_pipeline.schema.program.moments import DAY, day_argument, utc_today
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import grouped, plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.archive.config import require_store
from sam_pipeline.sql.archive.manifest import (
    Manifest,
    clean,
    forget_old_versions,
    newest_of,
    require_day,
    versions,
)
from sam_pipeline.sql.archive.record import (
    archive_lock,
    due_days,
    note_archived,
    note_damaged,
    number_changes,
    read_changes,
    sealed_versions,
    verified_versions,
)
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import name_of, reading, reading_at_once
from sam_pipeline.sql.database.roles import ARCHIVER

EXAMPLES = """\
examples:
  sam-db archive write --due
  sam-db archive write --from 2026-10-01 --to 2026-10-31
  sam-db archive list
  sam-db archive verify --due
  sam-db archive verify --day 2026-10-01
  sam-db archive restore 2026-10-01
  sam-db archive clean

The archive is that of `url` in section [archive] of sam.toml. A day is in the archive when its
manifest is; if `write` is interrupted, the next one completes its work. Days are UTC days.
It exits 65 if `verify` finds damage, 69 if the store is unavailable, 74 if it is full, and 77 if
it denies access.
"""

COLUMNS = ("day", "version", "results", "size_bytes", "made_at", "verified_at", "state")

logger = logging.getLogger(__name__)


def add_options(noun: argparse.ArgumentParser) -> None:
    add_verbs(
        noun,
        EXAMPLES,
        write=Verb(
            "write days that are not in the archive, or have changed",
            run_write,
            option("--due", action="store_true", help="all closed days older than `min_age`"),
            option(
                "--force", action="store_true", help="a new version even if nothing has changed"
            ),
            add_period,
        ),
        list=Verb("list the days in the archive", run_list, add_period),
        verify=Verb(
            "read all files, and compare them with their manifests and the database",
            run_verify,
            option("--due", action="store_true", help="only versions that were never verified"),
            add_period,
        ),
        restore=Verb(
            "load a day into the database; it changes no rows",
            run_restore,
            option("day", type=day_argument, metavar="DAY", help="a day of the archive"),
        ),
        clean=Verb("delete files that no manifest names", run_clean),
    )


def add_period(command: argparse.ArgumentParser) -> None:
    """--day; or --from, which is also --since, perhaps with --to."""
    period = command.add_argument_group("period (UTC days; one of --day or --from)")
    for options, dest, meaning in (
        (["--day"], "day", "a single day"),
        (["--from", "--since"], "first", "the first day, for example 30d"),
        (["--to"], "last", "the last day, included (default: yesterday)"),
    ):
        period.add_argument(*options, dest=dest, type=day_argument, metavar="DAY", help=meaning)


def _period(args: argparse.Namespace) -> tuple[date, date] | None:
    """The first and the last day, if there are any."""
    if args.day and (args.first or args.last):
        args.usage_error("--day can't be combined with --from and --to")
    if args.last and not args.first:
        args.usage_error("--to needs --from")
    first, last = args.day or args.first, args.day or args.last or utc_today() - DAY
    if first and first > last:
        args.usage_error(f"--from {first} is after --to {last}")
    if first and getattr(args, "due", False):
        args.usage_error("--due chooses the days: remove --day, --from and --to")
    return (first, last) if first else None


def _chosen(store: Store, period: tuple[date, date] | None) -> dict[date, list[int]]:
    """The versions of the days in the archive, or of those in a period."""
    first, last = period or (date.min, date.max)
    return {day: known for day, known in versions(store).items() if first <= day <= last}


def run_write(args: argparse.Namespace) -> int:
    """Write the days that are due, or those of a period."""
    # Loaded here, so that what only reads manifests works without pyarrow.
    from sam_pipeline.sql.archive.day import archive_day

    period = _period(args)
    if not (args.due or period):
        args.usage_error("name the days: --due, --day or --from")
    config, store = require_store(args)
    engine = open_database(args, ARCHIVER)
    documents = []
    with archive_lock(engine):
        change_no = number_changes(engine)
        with reading(engine) as connection:
            changes = read_changes(connection)
        if period:
            first, last = period
            if last >= utc_today():
                args.usage_error(f"{last} is not over yet: only closed days are archived")
            if not changes.has(first):
                pruned = f"results before {changes.horizon} were pruned"
                args.usage_error(f"{pruned}: {first} is not complete")
            days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
            known = {} if args.force else newest_of(store, days)
            days = [day for day in days if day not in known or not changes.is_in(known[day])]
        else:
            days = due_days(changes, store, utc_today(), config.min_age_days)
        sealed = sealed_versions(engine)
        for number, day in enumerate(days, 1):
            progress = Progress(f"{day} ({number} of {len(days)})", unit="results")
            try:
                manifest = archive_day(engine, store, day, change_no, progress.show)
            finally:
                progress.end()
            note_archived(engine, manifest)
            removed = forget_old_versions(store, day, sealed)
            documents.append({**_document(manifest), "seconds": round(progress.elapsed_s, 3)})
            if not args.json:
                deleted = f"; deleted {_versions(removed)}" if removed else ""
                print_done(args, f"{_line(manifest)}, {progress.elapsed_s:.1f} s{deleted}")
    if args.json:
        print_json(documents)
    elif not days:
        print_done(args, f"{store.url}: nothing is due")
    return OK


def run_verify(args: argparse.Namespace) -> int:
    """Verify versions, and record the outcome."""
    from sam_pipeline.sql.archive.verify import problem_with_database, problems_of_files

    period = _period(args)
    _, store = require_store(args)
    engine = open_database(args, ARCHIVER)
    bad, results = 0, []
    with archive_lock(engine):
        manifests = [*newest_of(store, _chosen(store, period)).values()]
        if args.due:
            verified = verified_versions(engine)
            done = {(day, version) for day, (version, _) in verified.items()}
            manifests = [item for item in manifests if (item.day, item.version) not in done]
        for number, manifest in enumerate(manifests, 1):
            progress = Progress(f"verifying {manifest.day} ({number} of {len(manifests)})")
            progress.draw(progress.name)
            try:
                problems = list(problems_of_files(store, manifest))
                with reading_at_once(engine) as connection:
                    changes = read_changes(connection)
                    if difference := problem_with_database(connection, manifest, changes):
                        problems.append(f"{store.url}/{manifest.name}: {difference}")
            finally:
                progress.end()
            if problems:
                note_damaged(engine, manifest.day)
            else:
                note_archived(engine, manifest, datetime.now(UTC))
            bad += bool(problems)
            results.append({**_document(manifest), "problems": problems})
            if not args.json:
                outcome = "damaged" if problems else "intact"
                print_done(args, f"{_line(manifest)}: {outcome}", *problems, success=not problems)
    if args.json:
        print_json(results)
    elif not manifests:
        print_done(args, f"{store.url}: nothing to verify")
    if bad:
        advice = "write new versions with `archive write --force --day`"
        logger.error("%s damaged; %s", plural(bad, "day"), advice)
    return BAD_DATA if bad else OK


def run_list(args: argparse.Namespace) -> int:
    period = _period(args)
    _, store = require_store(args)
    engine = open_database(args, ARCHIVER)
    known = _chosen(store, period)
    verified = verified_versions(engine)
    with reading(engine) as connection:
        changes = read_changes(connection)
    rows = []
    for day, manifest in newest_of(store, known).items():
        version, at = verified.get(day, (0, None))
        state = "current" if changes.has(day) else "pruned"
        rows.append(
            {
                **_document(manifest),
                "versions": known[day],
                "verified_at": format_time(at) if at and version == manifest.version else None,
                "state": state if changes.is_in(manifest) else "changed",
            }
        )
    if args.json:
        print_json(rows)
        return OK
    shown = [{**row, "version": _versions(row["versions"])} for row in rows]
    cells = [[row[column] for column in COLUMNS] for row in shown]
    print_table(COLUMNS, cells, f"{store.url}: no day is in the archive")
    return OK


def run_restore(args: argparse.Namespace) -> int:
    from sam_pipeline.sql.archive.restore import restore_day

    _, store = require_store(args)
    engine = open_database(args)
    manifest = require_day(store, args.day)
    progress = Progress(f"{args.day}", manifest.rows, "results")
    restored = restore_day(engine, store, manifest, progress.show)
    progress.end()
    if args.json:
        counts = {"restored": restored.rows, "duplicates": restored.duplicates}
        print_json({**_document(manifest), **counts})
        return OK
    for name, count in restored.rows.items():
        outcome = f"{plural(count, 'row')} restored, {grouped(restored.duplicates[name])} known"
        print_done(args, f"{name_of(engine)}: {args.day}: {name}: {outcome}")
    return OK


def run_clean(args: argparse.Namespace) -> int:
    _, store = require_store(args)
    with archive_lock(open_database(args, ARCHIVER)):
        deleted = clean(store)
    if args.json:
        print_json({"archive": store.url, "deleted": deleted})
    else:
        print_done(args, f"{store.url}: deleted {plural(len(deleted), 'file')}", *deleted)
    return OK


def _document(manifest: Manifest) -> dict[str, Any]:
    return {
        "day": manifest.day,
        "version": manifest.version,
        "results": manifest.rows,
        "statuses": manifest.statuses,
        "size_bytes": manifest.size_bytes,
        "files": len(manifest.files),
        "made_at": manifest.made_at,
        "change_no": manifest.source.change_no,
    }


def _line(manifest: Manifest) -> str:
    size = f"{manifest.size_bytes / 1e6:.1f} MB"
    count = f"{grouped(manifest.rows)} result{'' if manifest.rows == 1 else 's'}"
    return f"{manifest.day}: version {manifest.version}, {count}, {size}"


def _versions(numbers: list[int]) -> str:
    return ", ".join(f"v{number}" for number in numbers)
