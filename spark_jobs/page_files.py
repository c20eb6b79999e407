"""Writes pages from templates: a page is replaced at once, so nobody ever reads half of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from spark_jobs.drawing import HOURS, SHADES
from spark_jobs.drawing import LEGEND as BARS
from spark_jobs.errors import CannotMakePages, CannotWritePage
from spark_jobs.status import FOLDED
from spark_jobs.verdict import LEGEND

TEMPLATES = Path(__file__).parent / "templates"


class PageFiles:
    """The pages below a directory; `written` has their paths there, in order."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._environment = _environment()
        self.written: list[str] = []

    def write(self, path: str, template: str, **values: Any) -> None:
        """Fill in a template; `up` in it leads back to the directory.

        Raises:
            CannotMakePages: the directory for it can't be made.
            CannotWritePage: the disk is full, or closed to us; what was there before still is.
        """
        text = self._environment.get_template(template).render(up="../" * path.count("/"), **values)
        target = self._out / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotMakePages(f"{target.parent}: {error.strerror}; no page there") from error
        try:
            _replace(target, text)
        except OSError as error:
            raise CannotWritePage(
                f"{target}: {error.strerror}; {len(self.written)} pages are new, all others stay as"
                " they were: make room, then run the same again"
            ) from error
        self.written.append(path)


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name[:200]}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(
        legend=LEGEND, bars=BARS, shades=SHADES, hours=HOURS, statuses=FOLDED
    )
    return environment
