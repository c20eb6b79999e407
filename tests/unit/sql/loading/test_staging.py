"""The text for COPY is the same with and without the cache."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.sql.loading import staging
from sam_pipeline.sql.loading.catalogue import ClassView
from sam_pipeline.sql.loading.staging import Row, copy_text

VIEW = ClassView(
    "metricoutput",
    tuple(key.lower() for key in METRIC_OUTPUT.keys),
    "messageid",
    "publisher",
    bulk=True,
)
ROW = {"hostname": "CE01", "serviceflavour": "CE", "metricname": "M", "metricstatus": "ok"}
ODD = "tab\t, line\n, return\r and back\\slash"
ESCAPED = r"tab\t, line\n, return\r and back\\slash"


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (ROW, ["ce01|CE|M|||||||||||uid:7", "", "", "OK", r"\N", r"\N", r"\N", r"\N", "id"]),
        (
            {"servicetype": "SE", "gatheredat": ODD, "role": ODD, "detailsdata": ODD},
            [
                f"|SE|||||SE||||{ESCAPED}|||uid:7",
                ESCAPED,
                "",
                "",
                r"\N",
                r"\N",
                r"\N",
                ESCAPED,
                "id",
            ],
        ),
        (
            {"servicetype": "SE", "serviceflavour": "", "summarydata": "", "monitoringhost": "m"},
            ["||||||SE|||||||uid:7", "", "m", "", r"\N", "", r"\N", r"\N", "id"],
        ),
        (  # which PostgreSQL refuses
            {"servicetype": "SE", "summarydata": "\0", "detailsdata": "\0\n"},
            ["|SE|||||SE|||||||uid:7", "", "", "", r"\N", "\0", r"\N", "\0\\n", "id"],
        ),
    ],
)
def test_a_metric_result_is_one_line_with_its_names_joined(row: Row, line: list[str]) -> None:
    expected = "\t".join(line).replace("|", "\x1f") + "\n"

    for _ in range(2):  # joined, then from the cache
        assert copy_text(VIEW, [(row, "id", "uid:7")]).decode() == expected


def test_the_cache_of_constant_fields_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_MAX_CACHED", 50)
    monkeypatch.setattr(staging, "_constant_fields", staging._ConstantFields())

    for number in range(120):
        names = (f"M{number}", "M" * 1000)
        copy_text(VIEW, [({**ROW, "metricname": name}, "id", "uid:7") for name in names])

    assert 0 < len(staging._constant_fields) <= 50
    assert all(len(fields) <= 1000 for fields in staging._constant_fields.values())
