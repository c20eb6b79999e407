"""Writes pages from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sam_pipeline.spark_jobs.exports.files import output_file
from sam_pipeline.spark_jobs.pages.drawing import HOURS, SHADES
from sam_pipeline.spark_jobs.pages.drawing import LEGEND as BARS
from sam_pipeline.spark_jobs.pages.verdict import LEGEND
from sam_pipeline.spark_jobs.rules.statuses import FOLDED

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
            CannotMakeFile, CannotWriteFile: see output_file.
        """
        text = self._environment.get_template(template).render(up="../" * path.count("/"), **values)
        with output_file(self._out / path) as file:
            file.write(text.encode())
        self.written.append(path)


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
