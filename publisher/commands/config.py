"""`sam-publish config show`: each key with its value and where that comes from."""

from __future__ import annotations

import argparse

from sam_pipeline.publisher.commands.arguments import PROGRAM, add_broker_options
from sam_pipeline.publisher.commands.options import flags_of
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.load import examine_config
from sam_pipeline.schema.settings import show as config_show
from sam_pipeline.schema.settings.show import Part


def add_options(parser: argparse.ArgumentParser) -> None:
    config_show.add_options(parser, PROGRAM)
    add_broker_options(parser)
    parser.set_defaults(handler=show)


def show(args: argparse.Namespace) -> int:
    config, findings = examine_config(args.config, flags_of(args))
    findings.values.setdefault("state", config.state)
    findings.values.setdefault("spool", config.spool)
    return config_show.show(args, Part("publisher", PublisherConfig, findings))
