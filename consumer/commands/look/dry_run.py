"""`sam-consume run --dry-run`: what each message that passes would become; nothing is stored."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sam_pipeline.consumer.commands.look.looking import look, shortens
from sam_pipeline.consumer.commands.look.message_view import (
    head_document,
    head_lines,
    shortened,
)
from sam_pipeline.consumer.commands.look.preview import Preview, Previewer
from sam_pipeline.consumer.settings.load import load_for_tap
from sam_pipeline.consumer.sources.tap import make_taps
from sam_pipeline.schema.identity.policy import usable_policy
from sam_pipeline.schema.messages.decode import WHOLE
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program.command import OK, print_json_line, print_lines
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.sql.database.config import has_database
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER
from sam_pipeline.sql.loading.batch import UNKNOWN_CLASS, RecordFailure
from sam_pipeline.sql.loading.catalogue import BuiltInClasses, Catalogue

LONGEST_TEXT = 500
"""Characters of an error, and of a value that is not shown in full."""

logger = logging.getLogger(__name__)


def run_dry(args: argparse.Namespace) -> int:
    """Print until stopped what passing messages would become."""
    config = load_for_tap(args)
    policy = usable_policy(config.publishers)
    age = timedelta(days=config.signature_age_days)
    if has_database(args):
        engine = open_database(args, READER, read_only=True)
        catalogue, connected = Catalogue(engine), partial(reading, engine)
        previewer = Previewer(catalogue, config.limits(), policy, age, connected)
        logger.info(
            "nothing is stored; what a trigger or a constraint of the database refuses, and which"
            " rows are duplicates, is not decided"
        )
    else:
        previewer = Previewer(BuiltInClasses(), config.limits())
        logger.info(
            "nothing is stored; no database is configured: only the built-in classes are known%s",
            ", and the policy is not asked, as it needs the topology" if policy else "",
        )
    limits, brief, knows_all = config.limits(), shortens(args), has_database(args)

    def show(at: datetime, broker: str, message: Message) -> None:
        preview = previewer.of(message, at)
        if args.json:
            print_json_line({**head_document(at, broker, message), **_document(preview, knows_all)})
            return
        lines = list(_lines(preview, knows_all))
        print_lines(
            *head_lines(at, broker, message, limits), *(shortened(lines) if brief else lines), ""
        )

    look(args, make_taps(config, policy), show)
    return OK


def _lines(preview: Preview, knows_all: bool) -> Iterator[str]:
    if preview.is_check:
        yield "    a test message: it is counted, and not loaded"
    for row in preview.rows:
        yield f"    record {row.number}: a row of {preview.message_class}"
        yield from (f"      {column}: {one_line(text)}" for column, text in row.values.items())
    for letter in preview.letters:
        if _is_undecided(letter, knows_all):
            yield f"    undecided: {preview.message_class} is not one of the built-in classes"
        else:
            yield f"    {_named(letter)}: a dead letter, {_text(letter)}"
    for refused in preview.observed:
        yield f"    {_named(refused)}: loaded, but the policy would refuse it: {_text(refused)}"
    for key, count in preview.ignored.items():
        yield f"    key {one_line(key)}: ignored, as the class has no such column ({count} times)"


def _document(preview: Preview, knows_all: bool) -> dict[str, Any]:
    undecided = [letter for letter in preview.letters if _is_undecided(letter, knows_all)]
    return {
        "is_check": preview.is_check,
        "is_undecided": bool(undecided),
        "rows": [
            {"record": row.number, "class": preview.message_class, "values": dict(row.values)}
            for row in preview.rows
        ],
        "dead_letters": [
            _failure_document(item) for item in preview.letters if item not in undecided
        ],
        "observed": [_failure_document(item) for item in preview.observed],
        "ignored_keys": dict(preview.ignored),
    }


def _is_undecided(letter: RecordFailure, knows_all: bool) -> bool:
    """Whether the class may exist in a database."""
    return not knows_all and letter.reason == UNKNOWN_CLASS and bool(letter.message.message_class)


def _failure_document(failure: RecordFailure) -> dict[str, Any]:
    number = None if failure.number == WHOLE else failure.number
    return {"record": number, "reason": failure.reason, "error": failure.text}


def _named(failure: RecordFailure) -> str:
    return "the whole message" if failure.number == WHOLE else f"record {failure.number}"


def _text(failure: RecordFailure) -> str:
    return f"{failure.reason}: {one_line(failure.text, LONGEST_TEXT)}"
