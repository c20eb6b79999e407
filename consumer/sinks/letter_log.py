"""Log lines about dead letters and broken classes, folded: senders may cause thousands a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sam_pipeline.schema.identity.identity import sender_name
from sam_pipeline.schema.program.wording import one_line, plural
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.sql.loading.batch import CLASS_BROKEN
from sam_pipeline.sql.loading.letters.store import NewLetter

EVERY_S = 60.0
"""The time between two lines about one reason, or two errors about one class."""
LONGEST_NAME = 80
"""Characters of a class name, which senders choose."""
LONGEST_ERROR = 200

logger = logging.getLogger(__name__)


@dataclass
class _Letters:
    """The dead letters of a reason that were not logged yet."""

    due_at: float
    first: NewLetter | None = None
    count: int = 0
    are_alike: bool = True
    """Whether all have the class and the sender of the first one."""


@dataclass
class _Outage:
    """A class that is broken, or was."""

    name: str
    due_at: float
    error: str = ""
    """Empty while the class works."""
    began: float = 0.0
    parked: int = 0
    is_logged: bool = False


class LetterLog:
    """Logs the first dead letters of a reason at once, then the number of others once a minute.

    An outage of a class is logged when it begins and when it ends. If another one begins within a
    minute, it is logged when the minute is over, unless it has ended.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_reason: dict[str, _Letters] = {}
        self._outages: dict[str, _Outage] = {}
        """By folded name of the class."""

    def add(self, letters: Sequence[NewLetter]) -> None:
        """These letters were committed."""
        now = self._clock()
        for letter in letters:
            if letter.reason == CLASS_BROKEN:
                name = letter.message_class[:LONGEST_NAME]
                outage = self._outages.setdefault(folded(name), _Outage(name, now))
                if not outage.error:
                    outage.began, outage.parked = now, 0
                outage.error = letter.error
                outage.parked += 1
                continue
            waiting = self._by_reason.setdefault(letter.reason, _Letters(now))
            first = waiting.first = waiting.first or letter
            waiting.count += 1
            if letter.group != first.group:
                waiting.are_alike = False
        self.write_due()

    def class_works(self, name: str) -> None:
        """Messages of the class were loaded."""
        outage = self._outages.get(folded(name))
        if outage is None or not outage.error:
            return
        if outage.is_logged:
            logger.info(
                "class %s works again after %.0f s; %s of it, stored as dead letters meanwhile,"
                " will be loaded without further action",
                outage.name,
                self._clock() - outage.began,
                plural(outage.parked, "message"),
                extra={"message_class": outage.name},
            )
        outage.error, outage.is_logged = "", False

    def write_due(self, everything: bool = False) -> None:
        """Log the lines that are due, or at the end of the process all that remain."""
        now = self._clock()
        for reason, waiting in self._by_reason.items():
            if waiting.first and (everything or now >= waiting.due_at):
                _warn(reason, waiting.first, waiting.count, waiting.are_alike)
                self._by_reason[reason] = _Letters(now + EVERY_S)
        for outage in self._outages.values():
            if outage.error and not outage.is_logged and (everything or now >= outage.due_at):
                logger.error(
                    "class %s is broken: %s; its messages become dead letters (%s), which are"
                    " loaded once it works again: repair its view, trigger or grants (see"
                    " `sam-db check` and `sam-db classes`)",
                    outage.name,
                    outage.error,
                    CLASS_BROKEN,
                    extra={"message_class": outage.name},
                )
                outage.is_logged, outage.due_at = True, now + EVERY_S


def _warn(reason: str, first: NewLetter, count: int, are_alike: bool) -> None:
    name = one_line(first.message_class, LONGEST_NAME)
    sender = one_line(sender_name(first.identity, first.origin), LONGEST_ERROR)
    sender = f" from {sender}" if sender else ""
    if first.sender.source:
        sender += f" {'via' if sender else 'from'} {first.sender}"
    logger.warning(
        "%s, %s: %s%s%s, first message id %s (%s); see `sam-consume dead-letter list --reason %s`",
        plural(count, "new dead letter"),
        reason,
        f"class {name}" if name else "no class",
        sender,
        "" if are_alike else " and others",
        first.message_id,
        one_line(first.error, LONGEST_ERROR),
        reason,
        extra={
            "broker": first.sender.source,
            "message_id": first.message_id,
            "message_class": first.message_class,
            "login": first.sender.user,
            "publisher": first.identity,
            "claimed_host": first.origin.host,
            "claimed_program": first.origin.program,
            "claimed_user": first.origin.user,
        },
    )
