"""Names of classes compare as SQL compares unquoted identifiers."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.records.classes import built_in, folded


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("metricOutput", "metricoutput"),
        ("org.wlcg.metricEnvironment", "org.wlcg.metricenvironment"),
        ("sam-chec\u212a", "sam-chec\u212a"),
        ("ÄB", "Äb"),
        ("", ""),
    ],
)
def test_only_ascii_letters_have_a_case(name: str, expected: str) -> None:
    assert folded(name) == expected


def test_a_built_in_class_matches_in_any_case_but_no_look_alike_does() -> None:
    assert built_in("DOWNTIME") is built_in("downtime") is not None
    assert built_in("downt\u0131me") is None
    assert built_in(None) is None
