"""The tables of these pages that are generated from the code: `make docs` writes them.

A page holds a table between two comments, `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from docs import scale_tables
from docs.config_keys import NONE, REQUIRED, keys_of
from docs.exit_codes import EXIT_CODES
from docs.reasons import dead_letter_reasons
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import (
    BrokerConfig,
    DoorConfig,
    SilenceConfig,
    SubscriptionConfig,
)
from sam_pipeline.publisher.commands import nagios
from sam_pipeline.publisher.settings import BrokerTable, CopyTable, PublisherConfig
from sam_pipeline.schema.identity.policy import Policy, PublisherRule
from sam_pipeline.schema.program.monitoring_plugin import PluginThreshold
from sam_pipeline.schema.records.classes import STATEMENTS, MessageClass
from sam_pipeline.schema.settings.broker import ServerKeys
from sam_pipeline.spark_jobs.profiles import file
from sam_pipeline.spark_jobs.rules.statuses import AND, FOLDED, OR, Operation
from sam_pipeline.spark_jobs.runs.changes import INPUTS, OTHERWISE
from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.imports.feed_config import FeedConfig
from sam_pipeline.sql.imports.feed_rows import DEFAULT_FLAVOURS
from sam_pipeline.sql.removal.prune import PruneConfig

DOCS = Path(__file__).parent
TABLE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def config_keys(config_class: Any) -> str:
    return _table(
        ("key", "default", ""),
        ((_code(key.name), key.default, key.meaning) for key in keys_of(config_class)),
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
            for path, key in file.KEYS.items()
        ),
    )


def operations() -> str:
    """The built-in ones, as orders of the states: the result is the later of two."""

    def order(operation: Operation) -> str:
        wins = [sum(result == a for result in row) for a, row in enumerate(operation.table)]
        return " < ".join(FOLDED[a] for a in sorted(range(len(FOLDED)), key=wins.__getitem__))

    return _table(("operation", "the later of"), ((of.name, order(of)) for of in (AND, OR)))


def imported_columns() -> str:
    def columns(of: MessageClass) -> str:
        others = [key for key in of.keys if key not in of.required]
        return ", ".join([f"**{', '.join(of.required)}**", *others])

    rows = ((_code(table.name), columns(table)) for table in STATEMENTS)
    return _table(("`--class`", "columns (required ones first)"), rows)


def default_flavours() -> str:
    names: dict[str, list[str]] = {}
    for name, flavour in DEFAULT_FLAVOURS.items():
        names.setdefault(flavour, []).extend([] if name == flavour else [_code(name)])
    rows = ((_code(flavour), ", ".join(others) or NONE) for flavour, others in names.items())
    return _table(("flavour", "other names"), rows)


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


def scale_table(name: str) -> str:
    return _table(*scale_tables.TABLES[name]())


TABLES: Mapping[str, Callable[[], str]] = {
    "publisher-keys": lambda: config_keys(PublisherConfig),
    "publisher-broker-keys": lambda: config_keys(BrokerTable),
    "publisher-copy-keys": lambda: config_keys(CopyTable),
    "publisher-thresholds": lambda: thresholds(nagios.THRESHOLDS),
    "publisher-exit-codes": lambda: exit_codes("sam-publish"),
    "consumer-keys": lambda: config_keys(ConsumerConfig),
    "consumer-broker-keys": lambda: config_keys(BrokerConfig),
    "door-keys": lambda: config_keys(DoorConfig),
    "feed-keys": lambda: config_keys(FeedConfig),
    "server-keys": lambda: config_keys(ServerKeys),
    "archive-keys": lambda: config_keys(ArchiveConfig),
    "prune-keys": lambda: config_keys(PruneConfig),
    "silence-keys": lambda: config_keys(SilenceConfig),
    "subscription-keys": lambda: config_keys(SubscriptionConfig),
    "policy-keys": lambda: config_keys(Policy),
    "policy-publisher-keys": lambda: config_keys(PublisherRule),
    "dead-letter-reasons": lambda: _table(
        ("reason", "meaning", "what to do"),
        ((_code(reason), *texts) for reason, texts in dead_letter_reasons().items()),
    ),
    "consumer-exit-codes": lambda: exit_codes("sam-consume"),
    "database-exit-codes": lambda: exit_codes("sam-db"),
    "profile-keys": profile_keys,
    "operations": operations,
    "report-changes": lambda: _table(("reason", "what differs"), [*INPUTS.values(), OTHERWISE]),
    "report-exit-codes": lambda: exit_codes("sam-report"),
    "imported-columns": imported_columns,
    "default-flavours": default_flavours,
    **{name: partial(scale_table, name) for name in scale_tables.TABLES},
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


def _toml(value: object) -> str:
    number = int(value) if isinstance(value, Fraction) else value
    return NONE if value is None else _code(json.dumps(number))


if __name__ == "__main__":
    main()
