"""Writes the manual pages, and what shells need to complete our commands.

    python -m deploy.manual build/manual [PROGRAM...]

    man/sam-db.1, …, man/sam.toml.5          plain, not compressed
    bash/sam-db, zsh/_sam-db, fish/sam-db.fish

Their date is that of $SOURCE_DATE_EPOCH; without the variable they have none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from deploy.manual.completion import FILE_NAMES, scripts
from deploy.manual.config_page import config_page
from deploy.manual.parsers import MAKERS
from deploy.manual.program_page import program_page
from deploy.manual.roff import joined, title
from sam_pipeline.schema.program.command import VERSION

CONFIG = "sam.toml"


def main() -> None:
    directory, *programs = sys.argv[1:]
    write(Path(directory), programs or [*MAKERS, CONFIG])


def write(directory: Path, names: Iterable[str]) -> None:
    """Write the pages of programs, or of sam.toml, and the completion of the programs."""
    for name in names:
        section = 5 if name == CONFIG else 1
        lines = config_page() if name == CONFIG else program_page(name)
        head = title(name, section, date(), f"sam-pipeline {VERSION}")
        page = directory / "man" / f"{name}.{section}"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(joined([*head, *lines]), encoding="ascii")
        for shell, script in scripts(name).items() if section == 1 else ():
            path = directory / FILE_NAMES[shell].format(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{script}\n", encoding="utf-8")


def date() -> str:
    """The day of the sources, as packagers set it."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC).date().isoformat() if epoch else ""


if __name__ == "__main__":
    main()
