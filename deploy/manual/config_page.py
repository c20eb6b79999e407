"""sam.toml(5), from the classes that read the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from deploy.manual.program_page import name, see_also
from deploy.manual.roff import bold, definition, heading, literal, paragraph, plain, subheading
from docs.config_keys import NONE, REQUIRED, ConfigKey, keys_of
from docs.environment import CONFIG_FILES
from sam_pipeline.consumer.settings.broker_config import BrokerConfig
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.door_config import DoorConfig
from sam_pipeline.consumer.settings.silence_config import SilenceConfig
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.publisher.settings.config import BrokerTable, CopyTable, PublisherConfig
from sam_pipeline.spark_jobs.config import ReportConfig
from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.database.config import DatabaseConfig
from sam_pipeline.sql.imports.feed_config import FeedConfig

DESCRIPTION = """\
The configuration of all programs of SAM Pipeline, in TOML. Each program reads its own section, and
all but `sam-publish` also `[database]`. A worker node needs only `[publisher]`.

The file is the one that `--config` names, else `$SAM_CONFIG`, else the first that exists of
`./sam.toml`, `$XDG_CONFIG_HOME/sam/sam.toml` and `/etc/sam/sam.toml`. An option of the command line
takes precedence over an environment variable, `SAM_<SECTION>_<KEY>` in capitals, and the variable
over the file. In a variable, the items of a list are separated by commas; tables can only be set in
a file.

After a file named `sam.toml`, its fragments are read: the files `conf.d/*.toml` in the same
directory, in the order of their names. Tables are merged and arrays of tables joined; any other key
that is given twice is an error. A file of another name has no fragments.

A relative path is relative to the file that names it. An unknown key is an error, and all errors
are reported at once, with file and line. `check` of `sam-publish`, `sam-consume` and `sam-db` looks
for problems; `config --origin` of each program prints every key, its value, and where that
comes from.

Secrets belong into files of their own, with mode 0600. A `sam.toml` or a fragment that contains a
password must also have that mode, or 0640 if it belongs to root."""

EXAMPLE = """\
[database]
url = "postgresql://sam@db.example.org/sam?sslmode=verify-full"

[publisher]
brokers = ["stomp+ssl://msg1.example.org:61614"]
spool = "/var/spool/sam"

[consumer]
name = "site-a"
brokers = ["stomp+ssl://msg1.example.org:61614"]

[[consumer.subscription]]
destination = "/topic/grid.probe.metricOutput"
class = "metricOutput"

[report]
profiles = ["critical.toml"]"""


class ConfigTable(NamedTuple):
    """A section or table: the class that reads it, and what it is for, in Markdown."""

    config_class: Any
    meaning: str


TABLES: Mapping[str, ConfigTable] = {
    "[database]": ConfigTable(DatabaseConfig, "The database, for all programs but `sam-publish`."),
    "[publisher]": ConfigTable(PublisherConfig, "Where `sam-publish` sends messages."),
    "[[publisher.broker]]": ConfigTable(
        BrokerTable, "What applies at one broker alone. Keys that it lacks are the section's."
    ),
    "[[publisher.copy]]": ConfigTable(
        CopyTable, "A second set of brokers, which get the same messages."
    ),
    "[consumer]": ConfigTable(ConsumerConfig, "Where `sam-consume` gets messages, and how."),
    "[[consumer.subscription]]": ConfigTable(
        SubscriptionConfig, "A destination that is read at the brokers."
    ),
    "[[consumer.broker]]": ConfigTable(
        BrokerConfig, "What applies at one broker alone. Keys that it lacks are the section's."
    ),
    "[consumer.door]": ConfigTable(
        DoorConfig, "How messages are taken over HTTP, for URLs with `listen+https://`."
    ),
    "[[consumer.silence]]": ConfigTable(
        SilenceConfig, "An alarm if nothing arrives. The first table that matches applies."
    ),
    "[report]": ConfigTable(ReportConfig, "What `sam-report` computes."),
    "[[import.feed]]": ConfigTable(FeedConfig, "A feed that `sam-db import` reads."),
    "[archive]": ConfigTable(
        ArchiveConfig, "Where `sam-db archive` writes closed days, and `sam-report run` reads them."
    ),
}


def config_page() -> Iterator[str]:
    yield from name("sam.toml", "configuration of sam-publish, sam-consume, sam-db and sam-report")
    yield heading("Synopsis")
    yield from (".PP", bold("/etc/sam/sam.toml"), ".br", bold("/etc/sam/conf.d/*.toml"))
    yield heading("Description")
    for text in DESCRIPTION.split("\n\n"):
        yield from paragraph(" ".join(text.split()))
    yield heading("Sections")
    for title, table in TABLES.items():
        yield subheading(title)
        yield from paragraph(table.meaning)
        for key in keys_of(table.config_class):
            yield from definition(term(key), key.meaning)
    yield heading("Files")
    for path, meaning in CONFIG_FILES.items():
        yield from definition(bold(path), meaning)
    yield heading("Examples")
    yield from literal(EXAMPLE.splitlines())
    yield heading("See also")
    yield from see_also("sam-publish(1) sam-consume(1) sam-db(1) sam-report(1)")


def term(key: ConfigKey) -> str:
    """The name of a key, and whether it is required or has a default."""
    if key.default == NONE:
        return bold(key.name)
    note = f"({REQUIRED})" if key.default == REQUIRED else f"(default: {key.default})"
    return f"{bold(key.name)} {plain(note)}"
