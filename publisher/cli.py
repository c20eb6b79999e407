"""sam-publish: publish records, one result, or what a monitoring plugin found."""

from __future__ import annotations

import gc

gc.set_threshold(50_000)  # a start makes objects and no garbage: to look for it takes time

from sam_pipeline.publisher.commands.arguments import PROGRAM, build_parser  # noqa: E402
from sam_pipeline.schema.program import command  # noqa: E402

TYPE_CHECKING = False  # `import typing` takes a tenth of the time of a whole call
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    return command.run(PROGRAM, build_parser(), argv, _handle)


def _handle(args: argparse.Namespace) -> int:
    """Each command imports what it needs, and no other."""
    if args.command == "result":
        from sam_pipeline.publisher.commands.result import handle
    elif args.command == "send":
        from sam_pipeline.publisher.commands.send import handle
    elif args.command == "run":
        from sam_pipeline.publisher.commands.run import handle
    elif args.command == "spool":
        return _spool(args)
    else:
        return _check(args)
    return handle(args)


def _spool(args: argparse.Namespace) -> int:
    from sam_pipeline.publisher.commands.options import config_of
    from sam_pipeline.publisher.commands.spool import handle
    from sam_pipeline.schema.errors import ConfigError

    config = config_of(args)
    if config.spool is None:
        raise ConfigError(["there is no spool to look at: configure `spool`"])
    return handle(args, config)


def _check(args: argparse.Namespace) -> int:
    from sam_pipeline.publisher.commands.check import handle
    from sam_pipeline.publisher.commands.options import flags_of

    return handle(args, flags_of(args))
