"""Who may import whom: the rooms' walls, read from the source of every module."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYSPARK = ("pyspark", "py4j")  # the second comes with the first and raises its errors
# Beyond the standard library, by import name. A further library is a word here and three lines
# in docs/decisions.md.
MAY_IMPORT = {
    "schema": set(),
    "publisher": {"schema", "tomli"},
    "sql": {"schema", "sqlalchemy", "alembic", "psycopg2", "defusedxml"},
    "consumer": {"schema", "sql", "sqlalchemy", "prometheus_client"},
    "spark_jobs": {
        "schema",
        "sql",
        "sqlalchemy",
        "jinja2",
        "numpy",
        "pyarrow",
        "psycopg2",
        *PYSPARK,
    },
}
MODULES = [
    pytest.param(room, path, id=str(path.relative_to(ROOT)))
    for room in MAY_IMPORT
    for path in sorted((ROOT / room).rglob("*.py"))
]


@pytest.mark.parametrize(("room", "path"), MODULES)
def test_a_module_imports_only_what_its_room_may(room: str, path: Path) -> None:
    allowed = MAY_IMPORT[room] | sys.stdlib_module_names | {room}

    foreign = {name for name in _imported(path) if name not in allowed}

    assert foreign == set()


def test_every_room_has_modules() -> None:
    assert {module.values[0] for module in MODULES} == set(MAY_IMPORT)


def test_an_import_anywhere_in_a_module_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import os.path, requests as r\n"
        "from stomp.utils import Frame\n"
        "from . import beside\n"
        "def late():\n    import jinja2\n"
    )

    assert set(_imported(module)) == {"os", "requests", "stomp", "jinja2"}


def _imported(path: Path) -> Iterator[str]:
    """The room, or the library, of every absolute import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (_room_or_library(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield _room_or_library(node.module)


def _room_or_library(name: str) -> str:
    return name.removeprefix("sam_pipeline.").partition(".")[0]
