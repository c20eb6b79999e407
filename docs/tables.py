"""The tables of these pages that are generated from the code: `make docs` writes them.

A page holds a table between two comments, `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from sam_pipeline.consumer.settings.broker_config import BrokerConfig
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.door_config import DoorConfig
from sam_pipeline.consumer.settings.silence_config import SilenceConfig
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.publisher.commands import nagios
from sam_pipeline.publisher.settings.broker_config import BrokerTable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.copy_config import CopyTable
from sam_pipeline.schema.identity.policy import Policy, PublisherRule
from sam_pipeline.schema.program import command
from sam_pipeline.schema.program.monitoring_plugin import PluginThreshold
from sam_pipeline.schema.records import reasons
from sam_pipeline.schema.records.classes import MessageClass
from sam_pipeline.spark_jobs.profiles import keys
from sam_pipeline.spark_jobs.rules.statuses import AND, FOLDED, OR, Operation
from sam_pipeline.spark_jobs.runs.changes.figures import INPUTS, OTHERWISE
from sam_pipeline.sql.commands.imports.files import TABLES as IMPORTED
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from sam_pipeline.sql.loading import batch

DOCS = Path(__file__).parent
TABLE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
NONE = "\N{EN DASH}"
REQUIRED = "required"

EXIT_CODES: Mapping[str, Mapping[int, str]] = {
    "publisher": {
        command.OK: "published, or stored in the spool",
        command.USAGE: "usage error",
        command.BAD_DATA: "some records were refused, and the others sent; or the destination was"
        " refused, and nothing sent",
        command.NO_INPUT: "an input file is missing; `spool`: no such element",
        command.UNAVAILABLE: "not stored: no broker took it, and there is no spool; or the clock"
        " was never set",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "not stored: no broker took it, and the spool cannot be written",
        command.IO_ERROR: "not stored: no broker took it, and the spool is full; or published, but"
        " standard output could not be written",
        command.TRY_LATER: "no broker took it, with `--require-broker` or in a batch job; `spool`:"
        " other processes have locked elements",
        command.NO_PERMISSION: "not stored: no broker took it, and the spool belongs to another"
        " user; `spool drain`: elements of another user are left; the named configuration cannot be"
        " read",
        command.CONFIG: "configuration error",
        command.INTERRUPTED: "interrupted",
        command.TERMINATED: "terminated: what was read is published or in the spool; `run` killed"
        " the plugin and published its result (other signals: 128 and their number)",
    },
    "consumer": {
        command.OK: "stopped on request; or drained, and every record is a row, or with `--to`"
        " every message was moved",
        command.USAGE: "usage",
        command.BAD_DATA: "drained or replayed: there are new dead letters, or some failed again;"
        " or the brokers of `--to` rejected messages",
        command.NO_INPUT: "`dead-letter`: no letter has that id, or `edit --body`: no such file;"
        " `find`: a message was never seen",
        command.UNAVAILABLE: "a broker or the database was away longer than `--timeout`, or a"
        " spool or some of its elements could not be used for so long; the name"
        " runs already; the clock was never set; a package is missing; `unsubscribe`: the broker"
        " cannot be reached",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "the state directory or a spool cannot be created",
        command.IO_ERROR: "the state directory, a spool or standard output cannot be written",
        command.NO_PERMISSION: "the database refuses the login, or the role may not do this; the"
        " named configuration cannot be read; `unsubscribe`: the subscription is in use or"
        " configured, or the broker refuses",
        command.CONFIG: "configuration; no such database, or an [unsupported](upgrade.md) schema",
        command.INTERRUPTED: "interrupted (the daemon stops in order, with 0)",
    },
    "database": {
        command.OK: "success; of `check` and `repair`: no problem remains",
        command.USAGE: "usage error: an unknown option, class or version, or a wrong value",
        command.BAD_DATA: "`import`: some records, lines or files were bad; the others are stored."
        " Nothing of a feed is, if it is bad or incomplete. `audit`: the log was changed",
        command.NO_INPUT: "no such file to import, or no downtime or publisher has that id or name",
        command.UNAVAILABLE: "the database or the server of a feed cannot be reached, or a package"
        " is missing",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "the SQLite file, or the files of a feed, cannot be created",
        command.IO_ERROR: "the disk of the database is full, or standard output could not be"
        " written",
        command.TRY_LATER: "another import of the feed is running",
        command.NO_PERMISSION: "the database refuses the login, or the role may not do this; the"
        " server of a feed refuses us; the named configuration cannot be read",
        command.CONFIG: "configuration error; a missing database, an [unsupported](upgrade.md)"
        " schema; a problem remains",
        command.INTERRUPTED: "interrupted; `import` resumes if the command is repeated",
    },
    "reports": {
        command.OK: "success, also if a day has no data or nothing is due",
        command.USAGE: "usage error: a day in the future, an unknown report or site, a frozen day",
        command.NO_INPUT: "no such profile, or no exclusion has that id",
        command.UNAVAILABLE: "Java or a package is missing, Spark did not start, found no worker or"
        " failed, or the database cannot be reached",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "a file cannot be created",
        command.IO_ERROR: "the disk of the database, of the files or of Spark is full, or standard"
        " output could not be written",
        command.TRY_LATER: "a later run of the same day was published first: try again",
        command.NO_PERMISSION: "the database refuses the login, or the role may not do this; the"
        " named configuration cannot be read",
        command.CONFIG: "configuration error: a bad profile, a missing database, an"
        " [unsupported](upgrade.md) schema, results of several VOs",
        command.INTERRUPTED: "interrupted",
        command.TERMINATED: "`run` was terminated by SIGTERM",
    },
}


def dead_letter_reasons() -> Mapping[str, tuple[str, str]]:
    return {**batch.REASONS, **reasons.REASONS}


def consumer_keys(
    config: type[
        ConsumerConfig
        | FeedConfig
        | DoorConfig
        | BrokerConfig
        | SilenceConfig
        | SubscriptionConfig
        | Policy
        | PublisherRule
    ],
) -> str:
    rows = [
        (
            _code(field.metadata.get("key", field.name)),
            REQUIRED if _is_required(field) else _plain(field.default),
            field.metadata["what"],
        )
        for field in dataclasses.fields(config)
        if field.metadata.get("what")
    ]
    return _table(("key", "default", ""), rows)


def publisher_keys(config: type[PublisherConfig | BrokerTable | CopyTable]) -> str:
    defaults, metadata = config._field_defaults, config.metadata()
    return _table(
        ("key", "default", ""),
        (
            (
                _code(metadata[name].get("key", name)),
                _plain(defaults[name]) if name in defaults else REQUIRED,
                metadata[name]["what"],
            )
            for name in config._fields
            if metadata[name].get("key", name)
        ),
    )


def profile_keys() -> str:
    return _table(
        ("key", "default", ""),
        (
            (
                _code(path),
                REQUIRED if key.required else _toml(key.default),
                key.description,
            )
            for path, key in keys.KEYS.items()
        ),
    )


def operation(which: Operation) -> str:
    """The truth table of two states."""
    rows = (
        (f"**{FOLDED[a]}**", *(FOLDED[result] for result in row))
        for a, row in enumerate(which.table)
    )
    return _table((which.name, *FOLDED), rows)


def imported_columns() -> str:
    def columns(of: MessageClass) -> str:
        others = [key for key in of.keys if key not in of.required]
        return ", ".join([f"**{', '.join(of.required)}**", *others])

    rows = ((_code(table.name), columns(table)) for table in IMPORTED)
    return _table(("`--class`", "columns (required ones first)"), rows)


def thresholds(known: Iterable[PluginThreshold]) -> str:
    """The options of a plugin that set thresholds."""

    def shown(default: float | None) -> str:
        return NONE if default is None else f"{default:g}"

    rows = (
        (
            f"`--warning-{t.name}`, `--critical-{t.name}`",
            t.meaning,
            shown(t.warning),
            shown(t.critical),
        )
        for t in known
    )
    return _table(("options", "value", "warning", "critical"), rows)


def exit_codes(program: str) -> str:
    return _table(
        ("exit code", ""), ((str(code), what) for code, what in EXIT_CODES[program].items())
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "publisher-keys": lambda: publisher_keys(PublisherConfig),
    "publisher-broker-keys": lambda: publisher_keys(BrokerTable),
    "publisher-copy-keys": lambda: publisher_keys(CopyTable),
    "publisher-thresholds": lambda: thresholds(nagios.THRESHOLDS),
    "publisher-exit-codes": lambda: exit_codes("publisher"),
    "consumer-keys": lambda: consumer_keys(ConsumerConfig),
    "consumer-broker-keys": lambda: consumer_keys(BrokerConfig),
    "door-keys": lambda: consumer_keys(DoorConfig),
    "feed-keys": lambda: consumer_keys(FeedConfig),
    "silence-keys": lambda: consumer_keys(SilenceConfig),
    "subscription-keys": lambda: consumer_keys(SubscriptionConfig),
    "policy-keys": lambda: consumer_keys(Policy),
    "policy-publisher-keys": lambda: consumer_keys(PublisherRule),
    "dead-letter-reasons": lambda: _table(
        ("reason", "meaning", "what to do"),
        ((_code(reason), *texts) for reason, texts in dead_letter_reasons().items()),
    ),
    "consumer-exit-codes": lambda: exit_codes("consumer"),
    "database-exit-codes": lambda: exit_codes("database"),
    "profile-keys": profile_keys,
    "operation-and": lambda: operation(AND),
    "operation-or": lambda: operation(OR),
    "report-changes": lambda: _table(("reason", "what differs"), [*INPUTS.values(), OTHERWISE]),
    "report-exit-codes": lambda: exit_codes("reports"),
    "imported-columns": imported_columns,
}


def generated(page: str) -> str:
    """The text of a page with its tables as the code has them now."""
    return TABLE.sub(lambda mark: f"{mark[1]}{mark[2]}{TABLES[mark[1]]()}", page)


def named(page: str) -> list[str]:
    """The names of the tables of a page."""
    return [mark[1] for mark in TABLE.finditer(page)]


def main() -> None:
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        if (text := generated(page)) != page:
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {', '.join(named(page))}")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def lines() -> Iterator[str]:
        columns = list(head)
        yield _row(columns)
        yield "|" + "---|" * len(columns)
        yield from map(_row, rows)

    return "\n".join([*lines(), ""])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _code(text: object) -> str:
    return f"`{text}`"


def _is_required(field: dataclasses.Field[object]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _plain(value: object) -> str:
    """As in sam.toml, without quotes; a dash for what is empty."""
    if value is dataclasses.MISSING or (not value and value not in (0, False)):
        return NONE
    return str(value).lower().removesuffix(".0") if not isinstance(value, str) else value


def _toml(value: object) -> str:
    number = int(value) if isinstance(value, Fraction) else value
    return NONE if value is None else _code(json.dumps(number))


if __name__ == "__main__":
    main()
