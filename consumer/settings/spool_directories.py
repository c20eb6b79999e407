"""The directory queues of this host in which a message may wait."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import examine_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.settings.files import find_file, read_configuration, state_dir

_NEEDED = {"name", "broker_urls", "broker", "subscription", "max_message_bytes"}


def load_for_find(args: argparse.Namespace) -> ConsumerConfig:
    """What names and describes our spools; a host may have none, and no consumer."""
    findings = examine_consumer(args)
    if findings.bad & _NEEDED & findings.rejected.keys():
        raise ConfigError(findings.problems)
    values = {name: value for name, value in findings.values.items() if name in _NEEDED}
    return ConsumerConfig(**{"broker_urls": (), **values, "state_directory": state_dir(os.environ)})


def publisher_spools(args: argparse.Namespace) -> Iterator[Path]:
    """The spools of the publisher with this sam.toml and environment, and those of its copies."""
    document = read_configuration(find_file(args.config, os.environ))
    section: Any = document.values.get("publisher", {})

    def path(value: object, *keys: str | int) -> Path:
        return document.directory("publisher", *keys) / str(value)

    state = path(section["state"], "state") if "state" in section else state_dir(os.environ)
    if spool := os.environ.get("SAM_PUBLISHER_SPOOL"):
        yield Path(spool)
    else:
        yield path(section["spool"], "spool") if "spool" in section else state / "spool"
    for number, copy in enumerate(section.get("copy", ()), 1):
        if "spool" in copy:
            yield path(copy["spool"], "copy", number, "spool")
        else:
            yield state / "copies" / str(copy.get("name")) / "spool"
