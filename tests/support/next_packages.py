"""The packages of a made-up next release, whose schema has an additive version more."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from sam_pipeline.schema.program.command import VERSION as PRESENT
from tests.services.packages import PARTS, ROOT, Packages, built_packages
from tests.support.database.next_version import write_next_program

VERSION = "99.0"
REMARK = "# A comment of the next release.\n"
"""In its configuration file, so that dpkg has to decide between that and the site's."""


def next_packages(*names: str) -> Packages:
    with tempfile.TemporaryDirectory(prefix="sam-next-") as directory:
        source, program = Path(directory, "source"), Path(directory, "program")
        source.mkdir()
        for part in {"docs", *PARTS} - {"sql"}:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, source / part)
            else:
                shutil.copy2(ROOT / part, source / part)
        write_next_program(program)
        shutil.move(program / "sam_pipeline" / "sql", source / "sql")
        for file in ("pyproject.toml", "schema/__init__.py"):
            text = (source / file).read_text()
            (source / file).write_text(text.replace(f'"{PRESENT}"', f'"{VERSION}"', 1))
        with (source / "deploy" / "sam.toml").open("a") as example:
            example.write(REMARK)
        return built_packages(*names, source=source)
