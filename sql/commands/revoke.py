"""`sam-db revoke`: withdraw a publisher's records, and restore those they replaced."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from sam_pipeline.schema.program.command import (
    OK,
    print_done,
    print_json,
    text_argument,
)
from sam_pipeline.schema.program.moments import moment_argument
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.database.roles import OWNER
from sam_pipeline.sql.removal.revoke import revoke

EXAMPLES = """\
examples:
  sam-db revoke --publisher nagios-cern --since 2026-11-20T08:00Z --dry-run
  sam-db revoke --publisher nagios-cern --since 2026-11-20T08:00Z
  sam-db revoke --publisher key:nagios-cern --since 2026-11-20T08:00Z --until 2026-11-21T00:00Z
  sam-db revoke --publisher nagios-cern --since 2026-11-20T08:00Z --undo

Remove the publisher from the policy first: until then it can send more. --since and --until are
times of arrival. Its results are deleted, unless others have sent the same. Its statements about
endpoints, groups, contacts and downtimes are withdrawn, so that earlier ones hold again; --undo
takes that back. Deleted results come back only from the archive, or if they are sent again. The
next `sam-report run --due` recomputes the days that have changed; the published figures of a sealed
month stay until it is sealed again. If a revocation is interrupted, the next one completes it.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--publisher",
        required=True,
        type=text_argument,
        metavar="P",
        help="its name in the policy, for all of its identities, or one identity",
    )
    command.add_argument(
        "--since",
        required=True,
        type=moment_argument,
        metavar="TIME",
        help="revoke what arrived at this time or later",
    )
    command.add_argument(
        "--until", type=moment_argument, metavar="TIME", help="revoke only what arrived before it"
    )
    command.add_argument(
        "--undo", action="store_true", help="let its withdrawn statements hold again"
    )
    command.add_argument(
        "--dry-run", action="store_true", help="change nothing; print what would be done"
    )
    command.set_defaults(handler=run_revoke, usage_error=command.error)


def run_revoke(args: argparse.Namespace) -> int:
    since, until = args.since, args.until
    if until is not None and until <= since:
        args.usage_error(f"--until {format_time(until)} is not after --since {format_time(since)}")
    engine = open_database(args, OWNER)
    progress = Progress()
    revoked = revoke(
        engine,
        args.publisher,
        since,
        until,
        undo=args.undo,
        dry_run=args.dry_run,
        on_progress=progress.draw,
    )
    progress.end()
    if args.json:
        classes = {
            name: {"removed": withdrawn.removed, "restored": withdrawn.restored}
            for name, withdrawn in revoked.classes.items()
        }
        document = {"database": name_of(engine), "dry_run": args.dry_run, **asdict(revoked)}
        print_json({**document, "classes": classes})
        return OK
    would = "would be " if args.dry_run else ""
    lines = [f"{name_of(engine)}: {', '.join(revoked.identities)}"]
    for name, withdrawn in revoked.classes.items():
        done = "restored" if args.undo else "revoked"
        line = f"{name}: {plural(withdrawn.removed, 'record')} {would}{done}"
        if withdrawn.restored and not args.undo:
            line += f", {plural(withdrawn.restored, 'row')} {would}restored"
        lines.append(line)
    if revoked.dead_letters:
        lines.append(f"{plural(revoked.dead_letters, 'open dead letter')} {would}dropped")
    if len(lines) == 1:
        lines.append(f"nothing to {'restore' if args.undo else 'revoke'}")
    if revoked.due_days:
        lines.append(f"{would}due: {' '.join(map(str, revoked.due_days))}")
    lines += [
        f"{month} of report {report} is sealed: its published figures stay"
        for report, month in revoked.sealed
    ]
    print_done(args, *lines, success=not args.dry_run)
    return OK
