"""`sam-db archive`: write closed days to the archive, list, verify, restore and clean it."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.moments import day_argument
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import grouped, plural
from sam_pipeline.sql.archive.config import ArchiveConfig, require_store
from sam_pipeline.sql.archive.manifest import (
    Manifest,
    newest_of,
    require_day,
    versions,
)
from sam_pipeline.sql.archive.record import (
    Changes,
    archive_lock,
    due_days,
    note_archived,
    note_verified,
    number_changes,
    read_changes,
    verified_versions,
)
from sam_pipeline.sql.archive.retention import clean, forget_old_versions, sealed_versions
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.database.engine import name_of, reading, reading_at_once
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import ARCHIVER

EXAMPLES = """\
examples:
  sam-db archive --due --verify
  sam-db archive --from 2026-10-01 --to 2026-10-31
  sam-db archive --list
  sam-db archive --verify --day 2026-10-01
  sam-db archive --restore 2026-10-01
  sam-db archive --clean

The archive is that of `url` in section [archive] of sam.toml. A day is in the archive when its
manifest is; if this command is interrupted, the next one completes its work. Days are UTC days.
It exits 65 if --verify finds damage, 69 if the store is unavailable, 74 if it is full, and 77 if
it denies access.
"""

DUE = (
    "write the closed days older than `after` that are not in the archive, or have changed since;"
    " with --verify, then check the versions that were not checked yet"
)

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    actions = command.add_argument_group("actions (by default, write the days of the period)")
    actions.add_argument("--due", action="store_true", help=DUE)
    actions.add_argument("--list", action="store_true", help="list the days in the archive")
    actions.add_argument(
        "--verify",
        action="store_true",
        help="read all files, and compare them with their manifests, and with the database where"
        " it still has the day",
    )
    actions.add_argument(
        "--restore",
        type=day_argument,
        metavar="DAY",
        help="load a day into the database; what it has is not changed",
    )
    actions.add_argument("--clean", action="store_true", help="delete files that no manifest names")
    period = command.add_argument_group("period (one of --day, or --from with --to)")
    for option, dest, meaning in (
        ("--day", "day", "a single day"),
        ("--from", "first", "the first day"),
        ("--to", "last", "the last day (included)"),
    ):
        period.add_argument(option, dest=dest, type=day_argument, metavar="D", help=meaning)
    command.add_argument(
        "--force", action="store_true", help="write a new version of days that have not changed"
    )
    command.set_defaults(handler=run_archive, usage_error=command.error)


def run_archive(args: argparse.Namespace) -> int:
    period = _period(args)
    actions = [args.list, args.clean, args.restore is not None]
    if sum(actions) + (args.due or args.verify) > 1:
        args.usage_error("choose one action, or --due with --verify")
    if args.due and period:
        args.usage_error("--due chooses the days: remove --day, --from and --to")
    if not (any(actions) or args.due or args.verify or period):
        args.usage_error("name what to do: --due, a day, --list, --verify, --restore or --clean")
    config, store = require_store(args)
    if args.restore is not None:
        return _restore(args, store)
    engine = open_database(args, ARCHIVER)
    if args.list:
        return _list(args, engine, store, period)
    with archive_lock(engine, logger.warning):
        if args.clean:
            deleted = clean(store)
            if args.json:
                print_json({"archive": store.url, "deleted": deleted})
            else:
                lines = [f"{store.url}: deleted {plural(len(deleted), 'file')}", *deleted]
                print_done(args, *lines)
            return OK
        if args.due or not args.verify:
            return _write(args, engine, config, store, period)
        return _verify(args, engine, [*newest_of(store, _chosen(store, period)).values()], store)


def _period(args: argparse.Namespace) -> tuple[date, date] | None:
    """The first and the last day, if there are any."""
    if args.day and (args.first or args.last):
        args.usage_error("--day can't be combined with --from and --to")
    if bool(args.first) != bool(args.last):
        args.usage_error("--from and --to belong together")
    if args.first and args.first > args.last:
        args.usage_error(f"--from {args.first} is after --to {args.last}")
    if args.day:
        return args.day, args.day
    return (args.first, args.last) if args.first else None


def _chosen(store: Store, period: tuple[date, date] | None) -> list[date]:
    first, last = period or (date.min, date.max)
    return [day for day in versions(store) if first <= day <= last]


def _write(
    args: argparse.Namespace,
    engine: Engine,
    config: ArchiveConfig,
    store: Store,
    period: tuple[date, date] | None,
) -> int:
    """Write the days that are due, or those of a period."""
    # Loaded here, so that what only reads manifests works without pyarrow.
    from sam_pipeline.sql.archive.writing.day import archive_day

    change_no = number_changes(engine)
    with reading(engine) as connection:
        changes = read_changes(connection)
    today = datetime.now(UTC).date()
    if period:
        days = _closed_days(args, period, today, changes)
        known = {} if args.force else newest_of(store, days)
        days = [day for day in days if day not in known or not changes.is_in(known[day])]
    else:
        days = due_days(changes, store, today, config.after_days)
    sealed = sealed_versions(engine)
    documents, written = [], []
    for number, day in enumerate(days, 1):
        progress = Progress(f"{day} ({number} of {len(days)})", unit="results")
        try:
            manifest = archive_day(engine, store, day, change_no, progress.show)
        finally:
            progress.end()
        note_archived(engine, manifest)
        removed = forget_old_versions(store, day, config.keep_versions, sealed)
        written.append(manifest)
        documents.append({**_document(manifest), "seconds": round(progress.elapsed_s, 3)})
        if not args.json:
            line = f"{_line(manifest)}, {progress.elapsed_s:.1f} s"
            print_done(args, line + (f"; deleted {_versions(removed)}" if removed else ""))
    if not days and not args.json:
        print_done(args, f"{store.url}: nothing is due")
    if args.due and args.verify:
        verified = verified_versions(engine)
        unverified = [
            manifest
            for day, manifest in newest_of(store, versions(store)).items()
            if day not in verified or verified[day][0] != manifest.version
        ]
        return _verify(args, engine, unverified, store, documents)
    if args.json:
        print_json(documents)
    return OK


def _closed_days(
    args: argparse.Namespace, period: tuple[date, date], today: date, changes: Changes
) -> list[date]:
    first, last = period
    if last >= today:
        args.usage_error(f"{last} is not over yet: only closed days are archived")
    if not changes.has(first):
        args.usage_error(f"results before {changes.horizon} were pruned: {first} is not complete")
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _verify(
    args: argparse.Namespace,
    engine: Engine,
    manifests: Sequence[Manifest],
    store: Store,
    documents: Sequence[dict[str, Any]] = (),
) -> int:
    """Verify versions, and record the outcome."""
    from sam_pipeline.sql.archive.verify import problem_with_database, problems_of_files

    bad, results = 0, []
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
        note_verified(engine, manifest, not problems)
        bad += bool(problems)
        results.append({**_document(manifest), "problems": problems})
        if not args.json:
            outcome = "damaged" if problems else "intact"
            print_done(args, f"{_line(manifest)}: {outcome}", *problems, success=not problems)
    if args.json:
        print_json({"written": documents, "verified": results} if args.due else results)
    elif not manifests and not args.due:
        print_done(args, f"{store.url}: nothing to verify")
    if bad:
        logger.error("%s damaged; write new versions with --force --day", plural(bad, "day"))
    return BAD_DATA if bad else OK


def _list(
    args: argparse.Namespace, engine: Engine, store: Store, period: tuple[date, date] | None
) -> int:
    known = versions(store)
    manifests = newest_of(store, _chosen(store, period))
    verified = verified_versions(engine)
    with reading(engine) as connection:
        changes = read_changes(connection)
    rows = []
    for day, manifest in manifests.items():
        version, at = verified.get(day, (0, None))
        state = "pruned" if not changes.has(day) else "current"
        if not changes.is_in(manifest):
            state = "changed"
        rows.append(
            {
                **_document(manifest),
                "versions": known[day],
                "verified_at": at if version == manifest.version else None,
                "state": state,
            }
        )
    if args.json:
        print_json(rows)
        return OK
    columns = ("day", "version", "results", "size_bytes", "made_at", "verified_at", "state")
    cells = [
        [_versions(row["versions"]) if c == "version" else _cell(row[c]) for c in columns]
        for row in rows
    ]
    if rows:
        print_lines(*text_table(columns, cells))
    else:
        print_lines(f"{store.url}: no day is in the archive")
    return OK


def _restore(args: argparse.Namespace, store: Store) -> int:
    from sam_pipeline.sql.archive.restore import restore_day

    engine = open_database(args)
    manifest = require_day(store, args.restore)
    progress = Progress(f"{args.restore}", manifest.rows, "results")
    restored = restore_day(engine, store, manifest, progress.show)
    progress.end()
    if args.json:
        print_json(
            {**_document(manifest), "restored": restored.rows, "duplicates": restored.duplicates}
        )
        return OK
    for name, count in restored.rows.items():
        known = restored.duplicates[name]
        print_done(
            args,
            f"{name_of(engine)}: {args.restore}: {name}: {plural(count, 'row')} restored,"
            f" {grouped(known)} known",
        )
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


def _versions(numbers: Sequence[int]) -> str:
    return ", ".join(f"v{number}" for number in numbers)


def _cell(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value
