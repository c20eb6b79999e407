"""`sam-report config show`: each key with its value and where that comes from."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.settings import show as config_show
from sam_pipeline.schema.settings.show import Part
from sam_pipeline.spark_jobs.config import SECTION, ReportConfig, examine_report
from sam_pipeline.sql.database.config import database_part


def add_options(parser: argparse.ArgumentParser) -> None:
    config_show.add_options(parser, "sam-report")
    parser.set_defaults(handler=show)


def show(args: argparse.Namespace) -> int:
    report = Part(SECTION, ReportConfig, examine_report(args))
    return config_show.show(args, report, database_part(args))
