"""Writes pages from templates, at paths that never change, so that links stay valid.

A page whose content is the same keeps its file. `pages.sha256` beside the pages of a month has a
digest of what they were made from, and the digest of each, in the format of `sha256sum --check`:
while all of them are the same, the month need not be written again.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sam_pipeline.schema.identity.identity import known_identity
from sam_pipeline.schema.program.wording import duration, one_line, printable
from sam_pipeline.spark_jobs.explain.as_text import span_text
from sam_pipeline.spark_jobs.exports.files import output_file
from sam_pipeline.spark_jobs.pages.lanes import HOURS, SHADES
from sam_pipeline.spark_jobs.pages.lanes import LEGEND as BARS
from sam_pipeline.spark_jobs.pages.verdict import DOWNTIME, LEGEND
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.seconds import short
from sam_pipeline.spark_jobs.rules.statuses import FOLDED

TEMPLATES = Path(__file__).parent / "templates"

INDEX = "index.html"
TRENDS = "trends.html"
CHANGES = "changes.html"
REVISIONS = "revisions.html"
INCIDENTS = "incidents.html"
MANIFEST = "pages.sha256"

MAIL = re.compile(r"([\w.+-]+@[\w-]+(?:\.[\w-]+)+)")
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")
# Other pages, and the devices of Windows, which ignores what follows a dot.
_TAKEN = {"index", "trends", "changes", "revisions", "incidents", "con", "prn", "aux", "nul"} | {
    f"{device}{number}" for device in ("com", "lpt") for number in range(10)
}


class PageFiles:
    """The pages below the directory `out`; `digests` has those written, by their paths there."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.digests: dict[str, str] = {}
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            # Control characters are spelt out.
            finalize=lambda value: printable(value) if type(value) is str else value,
        )
        script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
        self._environment.globals.update(
            script=script,
            script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
            legend=LEGEND,
            downtime=DOWNTIME,
            bars=BARS,
            shades=SHADES,
            hours=HOURS,
            statuses=FOLDED,
            site_page=site_page,
            day_page=day_page,
        )
        self._environment.filters.update(
            short=short,
            time=time_text,
            span=lambda stretch: span_text(stretch.start, stretch.end, " to "),
            duration=duration,
            one_line=one_line,
            css=css_text,
            known=known_identity,
            mail=MAIL.split,
        )

    def write(self, path: str, template: str, **values: Any) -> None:
        """Write a page, if it changed, from a template in which `up` leads back to the directory.

        Raises:
            CannotMakeFile, CannotWriteFile: see output_file.
        """
        text = self._environment.get_template(template).render(up="../" * path.count("/"), **values)
        page = text.encode()
        _replace_if_other(self.out / path, page)
        self.digests[path] = _digest(page)

    def record(self, directory: str, inputs: str) -> None:
        """Record what the pages written to a directory were made from.

        Raises:
            CannotMakeFile, CannotWriteFile: see output_file.
        """
        start = f"{directory}/"
        lines = [f"# inputs {inputs}"] + [
            f"{digest}  {path.removeprefix(start)}"
            for path, digest in sorted(self.digests.items())
            if path.startswith(start)
        ]
        text = "".join(f"{line}\n" for line in lines)
        _replace_if_other(self.out / directory / MANIFEST, text.encode())

    def recorded(self, directory: str) -> list[str]:
        """The pages recorded in a directory; empty without a record, or if it is damaged."""
        return list(self._record(directory)[1])

    def keep(self, directory: str, inputs: str) -> bool:
        """Whether all pages of a directory are there, as written from these inputs."""
        old_inputs, pages = self._record(directory)
        if old_inputs != inputs:
            return False
        for page, digest in pages.items():
            try:
                if _digest((self.out / directory / page).read_bytes()) != digest:
                    return False
            except OSError:
                return False
        self.digests |= {f"{directory}/{page}": digest for page, digest in pages.items()}
        return True

    def _record(self, directory: str) -> tuple[str, dict[str, str]]:
        try:
            head, *lines = (self.out / directory / MANIFEST).read_text().splitlines()
            pages = (line.split("  ", 1) for line in lines)
            return head.removeprefix("# inputs "), {page: digest for digest, page in pages}
        except (OSError, ValueError):
            return "", {}


def _replace_if_other(path: Path, content: bytes) -> None:
    """Write a file, unless it has this content: then it keeps its time, for caches and rsync.

    Raises:
        CannotMakeFile, CannotWriteFile: see output_file.
    """
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass  # it does not exist, or writing it names the problem
    with output_file(path) as file:
        file.write(content)


def _digest(page: bytes) -> str:
    return hashlib.sha256(page).hexdigest()


def month_path(report: str, month: date) -> str:
    """The directory of a report's month."""
    return f"{slug(report, str.lower)}/{month:%Y-%m}"


def day_page(day: date) -> str:
    """The page of a day, relative to the index of the month."""
    return f"days/{day}.html"


def year_page(report: str, day: date) -> str:
    """The page of a report's year, next to the directories of its months."""
    return f"{slug(report, str.lower)}/{day:%Y}.html"


def site_page(site: str) -> str:
    """The page of a site, next to the index of the month."""
    return f"{slug(site, str.upper)}.html"


def group_page(group_type: str) -> str:
    """The page of a type of groups, relative to the index of the month."""
    return f"groups/{slug(group_type, str.lower)}.html"


def group_anchor(name: str) -> str:
    """The id of a group on the page of its type, which does not depend on the figures."""
    return f"group-{slug(name, str)}"


def time_text(second: int | None, form: str) -> str:
    """An epoch second in a format of strftime; empty for None."""
    return "" if second is None else moment(second).strftime(form)


def css_text(text: str) -> str:
    """An escaped text as the content of a string in a style sheet."""
    plain = html.unescape(printable(text))
    return re.sub(r"[^A-Za-z0-9 .,:_-]", lambda found: f"\\{ord(found[0]):06x}", plain)


def slug(name: str, usual_case: Callable[[str], str]) -> str:
    """A file name for any name: different names have files of their own, whatever their case.

    A plain name in the usual case is its own file name. Any other has a digest after a `~`, which
    is in no plain name.
    """
    plain = _PLAIN.fullmatch(name) and name == usual_case(name)
    if plain and name.lower() not in _TAKEN:
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{readable or '_'}~{digest[:20]}"
