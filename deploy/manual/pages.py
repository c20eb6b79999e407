"""The page of a program in section 1, from its parser, and sam.toml(5), from its classes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploy.manual.parsers import MAKERS, commands, parser_of
from deploy.manual.roff import bold, definition, inline, literal, markdown, plain, rendered, usage
from docs.config_keys import NONE, REQUIRED, keys_of
from docs.environment import CONFIG_FILES, ENVIRONMENT, FILES
from docs.exit_codes import EXIT_CODES
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import (
    BrokerConfig,
    DoorConfig,
    SilenceConfig,
    SubscriptionConfig,
)
from sam_pipeline.publisher.settings import BrokerTable, CopyTable, PublisherConfig
from sam_pipeline.schema import VERSION
from sam_pipeline.schema.program import help
from sam_pipeline.schema.settings.broker import ServerKeys
from sam_pipeline.schema.settings.key import Settings
from sam_pipeline.spark_jobs.config import ReportConfig
from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.database.config import DatabaseConfig
from sam_pipeline.sql.imports.feed_config import FeedConfig
from sam_pipeline.sql.removal.prune import PruneConfig

CONFIG = "sam.toml"
PAGES = (*MAKERS, CONFIG)
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ABOUT_CONFIG = (
    "The configuration of all programs of SAM Pipeline, in TOML. Each program reads its own"
    " section, and all but `sam-publish` also `[database]`. A worker node needs only `[publisher]`."
)
EXAMPLE = """\
[database]
url = "postgresql:///sam"

[publisher]
brokers = ["stomp+ssl://msg1.example.org:61614"]

[consumer]
name = "site-a"
brokers = ["stomp+ssl://msg1.example.org:61614"]

[report]
profiles = ["critical.toml"]"""

OF_A_BROKER = (
    "What applies at one broker alone, also the keys of servers. Keys that it lacks are the"
    " section's."
)
TABLES: Mapping[str, tuple[type[Settings], str]] = {
    "Keys of servers": (
        ServerKeys,
        (
            "How a program and a server know each other: in `[publisher]`, `[[publisher.copy]]` and"
            " `[consumer]` for all brokers, in tables of single brokers, and in `[[import.feed]]`."
        ),
    ),
    "[database]": (DatabaseConfig, "The database, for all programs but `sam-publish`."),
    "[publisher]": (PublisherConfig, "Where `sam-publish` sends messages."),
    "[[publisher.broker]]": (BrokerTable, OF_A_BROKER),
    "[[publisher.copy]]": (CopyTable, "A second set of brokers, which get the same messages."),
    "[consumer]": (ConsumerConfig, "Where `sam-consume` gets messages, and how."),
    "[[consumer.subscription]]": (
        SubscriptionConfig,
        "A destination that is read at the brokers.",
    ),
    "[[consumer.broker]]": (BrokerConfig, OF_A_BROKER),
    "[consumer.door]": (
        DoorConfig,
        "How messages are taken over HTTP, for URLs with `listen+https://`.",
    ),
    "[[consumer.silence]]": (
        SilenceConfig,
        "An alarm if nothing arrives. The first table that matches applies.",
    ),
    "[report]": (ReportConfig, "What `sam-report` computes."),
    "[[import.feed]]": (FeedConfig, "A feed that `sam-db import` reads."),
    "[archive]": (
        ArchiveConfig,
        "Where `sam-db archive` writes closed days, and `sam-report run` reads them.",
    ),
    "[prune]": (PruneConfig, "How long `sam-db prune` keeps data."),
}
"""The sections and tables of the file: the class that reads it, and what it is for."""


def page(name: str, date: str) -> Iterator[str]:
    """The lines of a page; without hyphenation, which changes options, and without wide gaps."""
    version = plain(f"sam-pipeline {VERSION}")
    yield ".nr HY 0"
    yield f'.TH "{plain(name)}" {section_of(name)} "{date}" "{version}" "SAM Pipeline"'
    yield from (".nh", ".ad l")
    yield from config_page() if name == CONFIG else program_page(name)
    yield from ('.SH "SEE ALSO"', ".PP")
    yield ", ".join(f"{bold(other)}({section_of(other)})" for other in PAGES if other != name)


def section_of(name: str) -> int:
    return 5 if name == CONFIG else 1


def program_page(program: str) -> Iterator[str]:
    parser = parser_of(program)
    sections = [*help.sections(parser)]
    summary = str(parser.description).removesuffix(".")
    common = next(section for section in sections if section.title == help.COMMON)
    examples = [section for section in sections if section.title in help.EXAMPLES]
    listed = [*help.command_sections(parser), common, *examples]
    yield from ('.SH "NAME"', rf"{plain(program)} \- {plain(summary[0].lower() + summary[1:])}")
    yield from ('.SH "SYNOPSIS"', *synopsis(parser), '.SH "DESCRIPTION"')
    for section in sections:
        if section not in listed:
            yield from rendered(section)
    yield '.SH "OPTIONS"'
    if subcommands := list(commands(parser)):
        yield from (".PP", "Each command accepts these options as well.")
    yield from rendered(common._replace(title=""))
    shown = {parser.epilog}
    for command in subcommands:
        if len(shown) == 1:
            yield '.SH "COMMANDS"'
        yield from (f'.SS "{plain(command.prog)}"', *synopsis(command))
        if command.epilog in shown:  # notes and examples of a group stand only once, at the group
            command.epilog = ""
        shown.add(command.epilog)
        for section in help.sections(command):
            if section not in (common, *help.command_sections(command)):
                yield from rendered(section)
    if program in EXIT_CODES:  # plugins describe theirs in their help
        codes = {str(code): meaning for code, meaning in EXIT_CODES[program].items()}
        yield from described("EXIT STATUS", codes)
    yield from described("ENVIRONMENT", ENVIRONMENT[program])
    yield from described("FILES", FILES[program])
    yield '.SH "EXAMPLES"'
    for section in examples:
        yield from rendered(section)[2:]


def synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    """How the command is called, without the options that all commands have."""
    words = help.usage(parser).removeprefix(f"usage: {parser.prog}")
    yield f'.SY "{plain(parser.prog)}"'
    for part in re.findall(r"[\[(].*?[\])]+(?= |$)|\S+(?: [A-Z]+)?", words):
        yield (
            usage(part).replace(" ", r"\ ").replace(r"|\ ", "| ") + r"\&"
        )  # "..." ends no sentence
    yield ".YS"


def described(title: str, texts: Mapping[str, str]) -> Iterator[str]:
    yield f'.SH "{title}"'
    for name, text in texts.items():
        yield from definition(bold(name), text)


def config_page() -> Iterator[str]:
    programs = "sam-publish, sam-consume, sam-db and sam-report"
    yield from ('.SH "NAME"', rf"{plain(CONFIG)} \- {plain(f'configuration of {programs}')}")
    yield from ('.SH "SYNOPSIS"', bold("/etc/sam/sam.toml"), ".br", bold("/etc/sam/conf.d/*.toml"))
    yield '.SH "DESCRIPTION"'
    yield inline(ABOUT_CONFIG)
    text = PAGE.read_text("utf-8")
    yield from markdown(text[text.index("## ") : text.index("## Keys of servers")])
    yield '.SH "SECTIONS"'
    for title, (settings, meaning) in TABLES.items():
        yield from (f'.SS "{plain(title)}"', inline(meaning))
        for key in keys_of(settings):
            note = f"({REQUIRED})" if key.default == REQUIRED else f"(default: {key.default})"
            term = f"{bold(key.name)} {'' if key.default == NONE else plain(note)}"
            yield from definition(term.strip(), key.meaning)
    yield from described("FILES", CONFIG_FILES)
    yield from ('.SH "EXAMPLES"', *literal(EXAMPLE.splitlines()))
