"""`sam-publish spool`: how much waits there, and sending it."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from pathlib import Path

from publisher.config import PublisherConfig
from publisher.drain import drain
from schema.command import BAD_DATA, OK, UNAVAILABLE, text_table, to_json
from schema.errors import ConfigError
from schema.spool import DirectoryQueue, written_at
from schema.times import format_time


def handle(args: argparse.Namespace, config: PublisherConfig) -> int:
    assert config.spool is not None, "only --no-spool takes it away, and that is not offered here"
    actions = {"status": _status, "drain": _drain}
    return actions[args.action](args, config, config.spool)


def _status(args: argparse.Namespace, config: PublisherConfig, spool: Path) -> int:
    count, size_bytes, oldest = 0, 0, None
    for name in DirectoryQueue(spool).names():
        oldest = oldest or written_at(name)
        count += 1
        with suppress(FileNotFoundError):  # just drained
            size_bytes += (spool / name).stat().st_size
    if args.json:
        state = {"path": str(spool), "messages": count, "size_bytes": size_bytes, "oldest": oldest}
        print(to_json(state))
        return OK
    row = (spool, count, size_bytes, format_time(oldest) if oldest else "-")
    print(text_table(["spool", "messages", "bytes", "oldest"], [row]))
    return OK


def _drain(args: argparse.Namespace, config: PublisherConfig, spool: Path) -> int:
    if not config.brokers:
        raise ConfigError(["no broker to drain to: give --broker, or brokers in [publisher]"])
    started = time.monotonic()
    result = drain(config)
    elapsed_s, left = time.monotonic() - started, DirectoryQueue(spool).count()
    if args.json:
        document = {
            "sent": result.sent,
            "rejected": sum(result.rejections.values()),
            "set_aside": result.set_aside,
            "left": left,
            "elapsed_s": round(elapsed_s, 3),
        }
        print(to_json(document))
    else:
        print(f"drained {result.sent} messages from {spool} in {elapsed_s:.1f} s, {left} left")
    if not result.complete:
        return UNAVAILABLE
    return BAD_DATA if result.rejections or result.set_aside else OK
