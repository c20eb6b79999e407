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
from deploy.manual.pages import CONFIG, PAGES, page, section_of
from deploy.manual.roff import joined


def main() -> None:
    directory, *programs = sys.argv[1:]
    write(Path(directory), programs or PAGES)


def write(directory: Path, names: Iterable[str]) -> None:
    """Write the pages of programs, or of sam.toml, and the completion of the programs."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    date = datetime.fromtimestamp(int(epoch), UTC).date().isoformat() if epoch else ""
    for name in names:
        texts = {f"man/{name}.{section_of(name)}": joined([*page(name, date)])}
        if name != CONFIG:
            texts |= {
                FILE_NAMES[shell].format(name): f"{script}\n"
                for shell, script in scripts(name).items()
            }
        for file, text in texts.items():
            path = directory / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
