"""Export: paths of files, covered months, and cells that are safe in spreadsheets."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from urllib.parse import unquote

import pytest

from sam_pipeline.spark_jobs.commands.export import FORMATS, covered_months
from sam_pipeline.spark_jobs.errors import CannotWriteFile
from sam_pipeline.spark_jobs.exports.files import output_file, path_part
from sam_pipeline.spark_jobs.exports.formats import WRITERS
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_lines, csv_table
from sam_pipeline.spark_jobs.rules.days import Period

TODAY = date(2026, 11, 20)


def test_every_format_has_a_writer() -> None:
    assert tuple(WRITERS) == FORMATS


@pytest.mark.parametrize(
    ("first", "last", "months"),
    [
        (date(2026, 10, 1), date(2026, 10, 31), ["2026-10"]),
        (date(2026, 10, 2), date(2026, 10, 31), []),
        (date(2026, 9, 30), date(2026, 11, 19), ["2026-10"]),
        (date(2026, 10, 31), TODAY, ["2026-11"]),  # as far as the running month goes
        (date(2024, 2, 1), date(2024, 2, 28), []),
        (date(2026, 12, 31), date(2027, 1, 31), ["2027-01"]),
    ],
)
def test_a_month_is_covered_when_the_period_contains_all_of_it(
    first: date, last: date, months: list[str]
) -> None:
    covered = covered_months(Period(first, last), TODAY)

    assert [f"{month.first:%Y-%m}" for month in covered] == months


@pytest.mark.parametrize("name", ["critical", "..", ".", "a/b", "ü %", "a=b", "~", "*?", "C:\\x"])
def test_a_name_becomes_one_part_of_a_path_and_comes_back(name: str) -> None:
    part = path_part(name)

    assert "/" not in part and not part.startswith(".")
    assert unquote(part) == name


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "below" / "file"
    with output_file(path) as file:
        file.write(b"old")

    with pytest.raises(ValueError, match="in the middle"), output_file(path) as file:
        file.write(b"half")
        raise ValueError("in the middle")

    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(CannotWriteFile, match="make room"), output_file(tmp_path / "file"):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_formula_is_shown_not_calculated(formula: str) -> None:
    assert csv_lines([[formula]]).strip('"\n').startswith("'")


def test_csv_quotes_and_joins() -> None:
    rows = [{"name": 'a "b", c', "missed": ["availability", "unknown"], "n": None, "x": -1.5}]

    assert csv_table(rows) == 'name,missed,n,x\n"a ""b"", c",availability unknown,,-1.5'
    assert csv_table([]) == ""
