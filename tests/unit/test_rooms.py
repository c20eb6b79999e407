"""Who may import whom: the walls of the rooms, one row per folder, read from every module."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "sam_pipeline."
MAX_ENTRIES = 14


class Wall(NamedTuple):
    """What the modules of a folder may import, besides each other and the standard library."""

    rooms: Sequence[str]
    libraries: Sequence[str]


NAMES = {
    "$GROUND": ("schema.__init__ schema.errors schema.times schema.log schema.secret_file"),
    "$PUBLISHER": "schema publisher.errors",
    "$SQL": "schema sql.errors",
    "$CONSUMER": "schema consumer.errors consumer.settings consumer.process",
    "$REPORTS": "schema spark_jobs.errors spark_jobs.config",
    "$DATABASE": "sql.database sql.errors",
}
TABLE = """
schema.errors:
schema.times: schema.errors
schema.log:
schema.secret_file: schema.errors
schema.net: $GROUND schema.program.wording
schema.program: $GROUND
schema.settings: $GROUND schema.program schema.net | tomli
schema.records: $GROUND
schema.messages: $GROUND schema.records schema.program.wording
schema.spool: $GROUND schema.messages
schema.net.stomp: $GROUND schema.net schema.messages
schema.identity: $GROUND schema.messages schema.records schema.program schema.settings | nacl
  tomli

publisher.errors: schema
publisher.settings: $PUBLISHER | tomli
publisher.probe: $PUBLISHER
publisher.spool: $PUBLISHER publisher.settings
publisher.brokers: $PUBLISHER publisher.settings publisher.spool
publisher.delivery: $PUBLISHER publisher.settings publisher.spool publisher.brokers
publisher.api: $PUBLISHER publisher.settings publisher.spool publisher.brokers publisher.delivery
  publisher.probe
publisher.load_test: $PUBLISHER publisher.settings publisher.brokers
publisher.load_test.page: schema publisher.load_test | matplotlib
publisher.commands.load_test: $PUBLISHER publisher.commands.arguments
  publisher.load_test
publisher.commands: $PUBLISHER publisher.settings publisher.spool publisher.brokers
  publisher.delivery publisher.probe
publisher.cli: $PUBLISHER publisher.commands
publisher.__main__: publisher.cli
publisher.__init__: publisher.api publisher.delivery publisher.errors publisher.settings
  schema.errors

sql.errors: schema | sqlalchemy psycopg2
sql.database: $SQL | sqlalchemy alembic
sql.database.migrations: sql.database | alembic
sql.loading: $SQL sql.database | sqlalchemy
sql.topology: $SQL sql.database sql.loading | sqlalchemy
sql.removal: $SQL sql.database sql.loading | sqlalchemy
# Only `s3` needs boto3, and only what reads or writes data files pyarrow.
sql.archive: $SQL sql.database sql.loading sql.topology | sqlalchemy psycopg2 numpy
  pyarrow boto3 botocore
sql.checks: $SQL sql.database sql.loading | sqlalchemy alembic
sql.imports: $SQL sql.database sql.loading sql.topology | sqlalchemy
# Only what fetches a feed loads requests.
sql.imports.client: $SQL sql.imports.feed_config | requests urllib3
sql.imports.download: $SQL sql.imports sql.imports.formats sql.topology
sql.imports.formats: $SQL sql.loading sql.topology sql.imports | defusedxml yaml
sql.commands: $SQL sql.database sql.loading sql.topology sql.removal sql.checks
  sql.imports sql.archive | sqlalchemy
sql.cli: $SQL sql.commands sql.database
sql.__main__: sql.cli

consumer.errors: schema
consumer.settings: schema consumer.errors
consumer.process: schema consumer.errors
consumer.core: $CONSUMER
consumer.sources: $CONSUMER consumer.core
consumer.sources.door: $CONSUMER consumer.core consumer.sources.signatures | aiohttp
consumer.sinks: $CONSUMER consumer.core
# Nothing else of the consumer imports `sql`: the relay starts without SQLAlchemy.
consumer.sinks.upkeep: $CONSUMER consumer.core $DATABASE sql.loading | sqlalchemy
consumer.sinks.database: $CONSUMER consumer.core consumer.sinks.upkeep $DATABASE sql.loading
  sql.checks | sqlalchemy
consumer.sinks.preview: $CONSUMER $DATABASE sql.loading
consumer.monitoring: $CONSUMER consumer.core | prometheus_client
consumer.commands: $CONSUMER consumer.core consumer.sources consumer.sinks consumer.monitoring
consumer.commands.files: $CONSUMER consumer.sources sql.database
consumer.commands.check: $CONSUMER consumer.sources consumer.sinks consumer.monitoring
  consumer.commands.arguments consumer.commands.files sql.database
consumer.commands.dead_letter: $CONSUMER consumer.commands.arguments $DATABASE sql.loading |
  sqlalchemy
consumer.commands.find: $CONSUMER $DATABASE sql.loading
consumer.commands.sender: $CONSUMER consumer.commands.arguments $DATABASE sql.loading | sqlalchemy
consumer.cli: $CONSUMER consumer.commands consumer.process
consumer.__main__: consumer.cli

spark_jobs.errors: schema
spark_jobs.config: schema spark_jobs.errors
spark_jobs.rules: $REPORTS | numpy
spark_jobs.profiles: $REPORTS spark_jobs.rules
spark_jobs.inputs: $REPORTS spark_jobs.rules spark_jobs.profiles $DATABASE | sqlalchemy
spark_jobs.inputs.archive: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  sql.archive sql.errors | pyarrow
spark_jobs.runs.origin: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  spark_jobs.runs.due sql.archive sql.errors | sqlalchemy
spark_jobs.runs: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs $DATABASE
  | sqlalchemy
spark_jobs.runs.exclusions: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  spark_jobs.runs $DATABASE sql.topology | sqlalchemy
# py4j comes with pyspark and raises its errors.
spark_jobs.compute.cluster: $REPORTS | pyspark py4j
spark_jobs.compute: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  spark_jobs.runs $DATABASE sql.archive | sqlalchemy psycopg2 numpy pyarrow pyspark
spark_jobs.explain: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  spark_jobs.runs $DATABASE sql.archive.store | sqlalchemy
spark_jobs.exports: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  spark_jobs.runs $DATABASE | sqlalchemy pyarrow
spark_jobs.pages: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs spark_jobs.runs
  spark_jobs.explain spark_jobs.exports $DATABASE sql.archive.store | sqlalchemy jinja2
spark_jobs.command_line: $REPORTS spark_jobs.rules spark_jobs.runs spark_jobs.exports.files
  $DATABASE | sqlalchemy
spark_jobs.commands: $REPORTS spark_jobs.rules spark_jobs.profiles spark_jobs.inputs
  spark_jobs.runs spark_jobs.compute spark_jobs.explain spark_jobs.exports spark_jobs.pages
  spark_jobs.command_line $DATABASE sql.loading sql.topology sql.archive |
  sqlalchemy
spark_jobs.cli: $REPORTS spark_jobs.commands
spark_jobs.__main__: spark_jobs.cli
"""
"""By folder or module: folders, for everything in them, or modules; then import names of libraries.

The nearest row applies: the module's own, else its folder's, else the parent folder's. Every new
library needs an entry in docs/decisions.md too.
"""


def _walls() -> Iterator[tuple[str, Wall]]:
    text = re.sub(r"^#.*\n", "", TABLE, flags=re.MULTILINE).replace("\n  ", " ")
    for name, value in NAMES.items():
        text = text.replace(name, value)
    for line in filter(None, text.splitlines()):
        folder, _, walls = line.partition(":")
        rooms, _, libraries = walls.partition("|")
        yield folder, Wall(rooms.split(), libraries.split())


WALLS = dict(_walls())

ROOMS = sorted({row.partition(".")[0] for row in WALLS})


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {module_name(path): path for room in ROOMS for path in (ROOT / room).rglob("*.py")}


def row_of(module: str) -> str | None:
    """The row that applies to a module; none for the docstring of a folder."""
    if (name := module.removesuffix(".__init__")) != module and name.partition(".")[2]:
        return row_of(name)
    while module and module not in WALLS:
        module = module.rpartition(".")[0]
    return module or None


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    """All nodes of the syntax tree of a module."""
    return list(ast.walk(ast.parse(path.read_text())))


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The dotted names that a module imports, including imports inside functions."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(path: Path) -> Iterator[str]:
    """Our own modules that a module imports."""
    for name in imported_names(nodes(path)):
        if name.startswith(PACKAGE):
            module = name.removeprefix(PACKAGE)
            while module not in MODULES and f"{module}.__init__" not in MODULES:
                module = module.rpartition(".")[0]
            yield module if module in MODULES else f"{module}.__init__"


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_imports_only_what_its_row_allows(room: str) -> None:
    climbing = {}
    for module in (name for name in MODULES if name.startswith(f"{room}.")):
        row = row_of(module)
        allowed = [*(WALLS[row].rooms if row else ()), row]
        libraries = {*(WALLS[row].libraries if row else ()), *sys.stdlib_module_names}
        others = {name.partition(".")[0] for name in imported_names(nodes(MODULES[module]))}
        climbing[module] = {
            name
            for name in imported_modules(MODULES[module])
            if row_of(name) != row
            and not any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed)
        } | (others - libraries - {PACKAGE.rstrip(".")})

    assert {module: names for module, names in climbing.items() if names} == {}


def test_every_module_has_a_row_and_every_row_a_module() -> None:
    rows = {row_of(module) for module in MODULES if not module.endswith("__init__")}

    assert rows | {"publisher.__init__"} == set(WALLS)


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    imports = {module: {*imported_modules(path)} - {module} for module, path in MODULES.items()}

    assert [*TopologicalSorter(imports).static_order()]


def test_no_folder_has_too_many_entries() -> None:
    folders = Counter(
        path.parent.relative_to(ROOT)
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if (path.is_dir() and path.name != "__pycache__")
        or (path.suffix == ".py" and path.name != "__init__.py")
    )

    assert {folder: count for folder, count in folders.items() if count > MAX_ENTRIES} == {}


def test_only_functions_that_spell_out_control_characters_print() -> None:
    """Those of `schema.program`; `sam-publish run` writes itself if these no longer work."""
    output = re.compile(r"print\(|os\.write\(sys\.|(sys\.)?std(out|err)(\.buffer)?\.write")
    printing = {
        module
        for module, path in MODULES.items()
        for node in nodes(path)
        if isinstance(node, ast.Call) and output.match(ast.unparse(node))
    }

    others = {name for name in printing if not name.startswith("schema.program.")}
    assert others == {"publisher.commands.run"}


def test_a_missing_service_is_reported_in_one_way() -> None:
    call = re.compile(r"\b(skip|skipif|importorskip)\(")

    skipping = {path for path in (ROOT / "tests").rglob("*.py") if call.search(path.read_text())}

    assert skipping == {ROOT / "tests" / "services" / "__init__.py"}
