"""The directory queues of this host in which a message may wait."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import examine_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.settings.files import find_file, state_dir

_NEEDED = {"name", "broker_urls", "broker", "subscription", "max_message_bytes"}


def load_for_find(args: argparse.Namespace) -> ConsumerConfig:
    """What names and describes our spools; a host may have none, and no consumer."""
    findings = examine_consumer(args)
    if findings.bad & _NEEDED & findings.rejected.keys() or findings.unknown_variables:
        raise ConfigError(findings.problems)
    values = {name: value for name, value in findings.values.items() if name in _NEEDED}
    return ConsumerConfig(**{"broker_urls": (), **values, "state_directory": state_dir(os.environ)})


def publisher_spools(args: argparse.Namespace) -> Iterator[Path]:
    """The spools of the publisher with this sam.toml and environment, and those of its copies."""
    file = find_file(args.config, os.environ)
    section: Any = tomllib.loads(file.read_text("utf-8")).get("publisher", {}) if file else {}
    base = file.parent if file else Path()
    state = base / str(section.get("state", state_dir(os.environ)))
    main = os.environ.get("SAM_PUBLISHER_SPOOL") or section.get("spool")
    yield base / str(main) if main else state / "spool"
    for copy in section.get("copy", ()):
        own = copy.get("spool")
        yield base / own if own else state / "copies" / str(copy.get("name")) / "spool"
