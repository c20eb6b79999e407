"""`sam-consume find`: where a message is, by its id."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.config import ConsumerConfig, examine_consumer
from sam_pipeline.schema.identity.identity import sender_name
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.headers import REJECTED
from sam_pipeline.schema.messages.message import Origin, claimed_origin
from sam_pipeline.schema.net.broker import SPOOL
from sam_pipeline.schema.program.command import (
    NO_INPUT,
    OK,
    print_json,
    print_lines,
    text_argument,
)
from sam_pipeline.schema.program.moments import moment_argument
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.settings.files import find_file, read_configuration, state_dir
from sam_pipeline.schema.spool.inspection import SpoolElement, elements_of
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.config import open_if_configured
from sam_pipeline.sql.loading.letters.dead_letter import DeadLetter
from sam_pipeline.sql.loading.letters.whereabouts import Whereabouts, whereabouts

AGE = timedelta(days=7)
"""How much older than its message a result may be, unless --since says otherwise."""
AHEAD = timedelta(days=2)
"""How much newer a result may be: its clock may be a day ahead, by default."""
SKEW_S = 86_400
"""How far the clocks of two hosts may differ, for the age of an element in a spool (s)."""
LISTED = 20
"""Rows of a message that are listed as text."""
LONGEST_ERROR = 200

_OF_OURS = re.compile(r"([0-9a-f]{14})-[0-9a-f]{18}")

EXAMPLES = """\
examples:
  sam-consume find 0660f557bd1ea3-3da37507d44158f917
  sam-consume find --since 400d sha256:DIGEST     of a message whose sender gave it no id
  sam-consume find --spool /var/spool/other --json ID…

A message is looked for in the spools of this host (those that the consumer reads, what its relay
keeps, those of the publisher, and --spool), among the rows and the dead letters of the database,
and in the summaries of floods, which quote some messages. Parts of it may be in several places. The
ids that sam-publish makes contain the time of the message: results measured in the 7 days before it
are searched, for other ids those of the last 7 days; --since goes further back. A message that only
repeated stored rows leaves no trace, and neither does one that is still at a broker.

Exit code: 0 if all were found, 66 if one of them was not.
"""


@dataclass
class MessageFindings:
    """Where one message was found, and the period of the results that were searched."""

    message_id: str
    begins: datetime
    ends: datetime
    elements: list[SpoolElement] = field(default_factory=list)
    stored: Whereabouts | None = None

    @property
    def is_found(self) -> bool:
        return bool(self.elements) or bool(self.stored and self.stored.is_known)


WAITS = "waiting"
OF_SPOOLS = {"name", "broker_urls", "broker", "subscription", "max_message_bytes"}
"""The keys that name and describe our spools."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "ids",
        metavar="MESSAGE-ID",
        nargs="+",
        type=text_argument,
        help="id of a message, as sam-publish has printed it",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=moment_argument,
        help="also search older results, measured since then, for example 400d (default: since"
        f" {AGE.days} days before the message was made, or before now if its id has no time)",
    )
    parser.add_argument(
        "--spool",
        dest="spools",
        metavar="DIRECTORY",
        type=Path,
        action="append",
        default=[],
        help="also search this directory queue",
    )
    parser.set_defaults(handler=run_find)


def run_find(args: argparse.Namespace) -> int:
    """Print where each message is.

    Raises:
        SpoolError, DatabaseAway: a place can't be searched.
    """
    now = datetime.now(UTC)
    findings = {}
    for message_id in dict.fromkeys(args.ids):
        made = time_of_id(message_id)
        begins = (made or now) - AGE
        if args.since:
            begins = min(begins, args.since)
        findings[message_id] = MessageFindings(message_id, begins, (made or now) + AHEAD)
    known = examine_consumer(args)  # a host may have no spools, and no consumer
    config = known.only(*OF_SPOOLS & {*known.values, *known.rejected})
    spools = spools_of(config, [*_publisher_spools(args), *args.spools])
    times = [made.timestamp() - SKEW_S if made else 0.0 for made in map(time_of_id, findings)]
    for path, stamp in spools.items():
        queue = DirectoryQueue(path)
        for element in elements_of(
            queue, findings, min(times), stamp.stamped, config.max_message_bytes
        ):
            findings[element.message_id].elements.append(element)
    engine = open_if_configured(args)
    if engine:
        for one in findings.values():
            one.stored = whereabouts(engine, one.message_id, one.begins, one.ends)
    if args.json:
        print_json([document(one, list(spools)) for one in findings.values()])
    else:
        for index, one in enumerate(findings.values()):
            print_lines(*[""] * bool(index), *lines_of(one, list(spools)))
    return OK if all(one.is_found for one in findings.values()) else NO_INPUT


def time_of_id(message_id: str) -> datetime | None:
    """When a message of ours was made; None for other ids."""
    match = _OF_OURS.fullmatch(message_id)
    made = datetime.fromtimestamp(int(match[1], 16) / 1e6, UTC) if match else None
    return made if made and 2000 < made.year < 2200 else None


def _publisher_spools(args: argparse.Namespace) -> Iterator[Path]:
    """The spools of the publisher with this sam.toml and environment, and those of its copies."""
    document = read_configuration(find_file(args.config, os.environ))
    section: Any = document.values.get("publisher", {})

    def path(value: object, *keys: str | int) -> Path:
        return document.directory("publisher", *keys) / str(value)

    named = section.get("state_dir")
    state = path(named, "state_dir") if named else state_dir(os.environ)
    if spool := os.environ.get("SAM_PUBLISHER_SPOOL"):
        yield Path(spool)
    else:
        yield path(section["spool"], "spool") if "spool" in section else state / "spool"
    for number, copy in enumerate(section.get("copy", ()), 1):
        if "spool" in copy:
            yield path(copy["spool"], "copy", number, "spool")
        else:
            yield state / "copies" / str(copy.get("name")) / "spool"


def spools_of(config: ConsumerConfig, others: Sequence[Path]) -> Mapping[Path, Stamp]:
    """The directory queues that exist, and the headers that their readers add."""
    spools = {
        Path(broker.path): config.stamp_of(broker)
        for broker in config.brokers
        if broker.kind == SPOOL
    }
    for path in (config.rejected_directory, *others):
        spools.setdefault(path, Stamp())
    return {
        path: stamp
        for path, stamp in spools.items()
        if path.exists() or Path(f"{path}.bad").exists()
    }


def lines_of(one: MessageFindings, spools: Sequence[Path]) -> Iterator[str]:
    """The findings as text."""
    yield f"{one.message_id}:"
    for element in one.elements:
        state, reason = state_of(element)
        sender = sender_name("", claimed_origin(element.message.headers))
        why = f": {reason}" if reason else f", from {sender}" if sender and state == WAITS else ""
        yield f"  spool: {element.file} ({state}{why})"
    for row in one.stored.rows[:LISTED] if one.stored else ():
        key = " ".join(f"{name}={value}" for name, value in row.key.items())
        loaded = f", loaded {format_time(row.received_at)}" if row.received_at else ""
        kind = "row of" if row.holds else "kept beside the row of"
        yield f"  {kind} {row.message_class}: {one_line(key, 400)}{loaded}"
    if one.stored:
        if (more := len(one.stored.rows) - LISTED) > 0:
            yield f"  and {more} more rows (--json lists all)"
        for letter in one.stored.letters:
            yield f"  {describe_letter(letter)}"
        for letter in one.stored.summaries:
            yield (
                f"  summary: dead letter {letter.dead_letter_id} ({letter.state}) quotes it;"
                " the message was not stored"
            )
    if not one.is_found:
        places = [f"in {path}" for path in spools]
        if one.stored:
            period = f"from {format_time(one.begins)} to {format_time(one.ends)}"
            places.append(f"in the database (results {period}; --since searches older ones)")
        else:
            places.append("no database is configured")
        yield f"  never seen {', '.join(places)}"
    if one.stored and one.stored.not_searched:
        yield f"  not searched: {', '.join(one.stored.not_searched)}"


def state_of(element: SpoolElement) -> tuple[str, str | None]:
    """Whether an element waits or was set aside, and why."""
    if element.is_damaged:
        return "damaged", element.reason or None
    reason = element.message.headers.get(REJECTED)
    return WAITS if reason is None else "rejected", reason


def describe_letter(letter: DeadLetter) -> str:
    origin = Origin(letter.claimed_host or "", "", letter.claimed_user or "")
    sender = sender_name(letter.publisher or "", origin)
    record = f"record {letter.record_number}" if letter.record_number else "the whole message"
    return (
        f"dead letter {letter.dead_letter_id} ({letter.state}): {record}, {letter.reason},"
        f" received {format_time(letter.received_at)}"
        f"{f' from {sender}' if sender else ''}: {one_line(letter.error, LONGEST_ERROR)}"
    )


def document(one: MessageFindings, spools: Sequence[Path]) -> dict[str, object]:
    """The findings for JSON."""
    stored = one.stored
    return {
        "message_id": one.message_id,
        "found": one.is_found,
        "spool": [
            {
                "file": element.file,
                "state": state,
                "reason": reason,
                "headers": dict(element.message.headers),
            }
            for element in one.elements
            for state, reason in [state_of(element)]
        ],
        "rows": [asdict(row) for row in stored.rows] if stored else [],
        "dead_letters": [asdict(letter) for letter in stored.letters] if stored else [],
        "summaries": [asdict(letter) for letter in stored.summaries] if stored else [],
        "searched": {
            "spools": [str(path) for path in spools],
            "database": stored is not None,
            "results_from": one.begins,
            "results_until": one.ends,
            "not_searched": stored.not_searched if stored else [],
        },
    }
