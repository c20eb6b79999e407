"""`sam-consume config show`: each key with its value and where that comes from."""

from __future__ import annotations

import argparse

from sam_pipeline.consumer.settings.config import SECTION, ConsumerConfig
from sam_pipeline.consumer.settings.load import examine_consumer
from sam_pipeline.schema.settings import show as config_show
from sam_pipeline.schema.settings.show import Part


def add_options(parser: argparse.ArgumentParser) -> None:
    config_show.add_options(parser, "sam-consume")
    parser.set_defaults(handler=show)


def show(args: argparse.Namespace) -> int:
    parts = [Part(SECTION, ConsumerConfig, examine_consumer(args))]
    try:
        from sam_pipeline.sql.database.config import database_part
    except ImportError:  # a relay needs no database
        pass
    else:
        parts.append(database_part(args))
    return config_show.show(args, *parts)
