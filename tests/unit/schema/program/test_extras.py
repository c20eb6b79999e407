"""The packages of the extras, as pyproject.toml has them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sam_pipeline.schema.program.extras import EXTRAS, how_to_install

PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"
IMPORT_NAMES = {"psycopg2-binary": "psycopg2", "pynacl": "nacl"}
"""Of distributions whose names differ from those of their packages."""


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_package_of_an_extra_is_known(extra: str) -> None:
    listed = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"][extra]

    names = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in listed}
    packages = {IMPORT_NAMES.get(name, name) for name in names - {"sam-pipeline"}}

    assert packages | {"py4j"} == {*EXTRAS[extra], "py4j"}


def test_a_submodule_is_installed_with_its_package() -> None:
    [line] = how_to_install("pyspark.sql")

    assert line.startswith("pyspark ")
    assert "'.[reports]'" in line


def test_a_module_that_no_extra_has_is_a_bug() -> None:
    assert how_to_install("sam_pipeline.sql.nothing") == []
