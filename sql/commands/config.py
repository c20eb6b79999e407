"""`sam-db config show`: the configuration of database, imports and archive, and its origins."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.settings import show as config_show
from sam_pipeline.sql.archive.config import archive_part
from sam_pipeline.sql.database.config import database_part
from sam_pipeline.sql.imports.feed_config import import_part


def add_options(parser: argparse.ArgumentParser) -> None:
    config_show.add_options(parser, "sam-db")
    parser.set_defaults(handler=show)


def show(args: argparse.Namespace) -> int:
    return config_show.show(args, database_part(args), import_part(args), archive_part(args))
