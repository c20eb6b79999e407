"""Long output on a terminal goes through $PAGER."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Callable

from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.program.command import print_lines
from sam_pipeline.schema.program.wording import printable

DEFAULT = "less"
LESS = "FRX"
"""Options of `less`, unless $LESS has others: leave at once what fits on the screen."""

Printer = Callable[[Iterable[str]], bool]
"""Prints lines; returns False once nobody reads them any more."""

logger = lazy_logger(__name__)


@contextmanager
def paged(wanted: bool = True) -> Iterator[Printer]:
    """A printer on standard output, through a pager if that is `wanted`, and a terminal.

    On leaving the block it waits until the reader has closed the pager.
    """
    command = pager_command(os.environ) if wanted and sys.stdout.isatty() else []
    if not command:
        yield _print
        return
    try:
        environment = {"LESS": LESS, **os.environ}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except OSError as error:
        logger.warning("pager %s: %s; printing without one", command[0], error.strerror)
        yield _print
        return
    pipe = process.stdin
    assert pipe is not None

    def write(lines: Iterable[str]) -> bool:
        text = "".join(f"{printable(line)}\n" for line in lines)
        try:
            pipe.write(text.encode("utf-8", "backslashreplace"))
            pipe.flush()
        except BrokenPipeError:  # the reader has seen enough
            return False
        return True

    sys.stdout.flush()
    try:
        yield write
    finally:
        with suppress(BrokenPipeError):
            pipe.close()
        while process.poll() is None:
            with suppress(KeyboardInterrupt):  # meant for the pager
                process.wait()


def pager_command(environment: Mapping[str, str]) -> list[str]:
    """The pager and its arguments; empty if there is none, or `cat`."""
    command = shlex.split(environment.get("PAGER", DEFAULT))
    if not command or command == ["cat"]:
        return []
    return command if "PAGER" in environment or shutil.which(command[0]) else []


def _print(lines: Iterable[str]) -> bool:
    print_lines(*lines)
    return True
