"""Names that the topology does not have, and downtimes that apply to no endpoint."""

from __future__ import annotations

import pytest

from sam_pipeline.sql.topology.downtime import (
    EXAMPLES,
    not_in_topology,
    without_endpoints,
)

TOPOLOGY = [
    {"siteName": "A", "hostName": "ce01", "serviceFlavour": "HTCONDOR-CE"},
    {"siteName": "A", "hostName": "se01", "serviceFlavour": "WEBDAV"},
    {"siteName": "T2_B", "gridSite": "B", "hostName": "se02", "serviceFlavour": "WEBDAV"},
]


def downtime(site: str = "", host: str = "", flavour: str = "", number: str = "") -> dict[str, str]:
    names = zip(
        ("siteName", "hostName", "serviceFlavour", "downtimeId"),
        (site, host, flavour, number),
        strict=True,
    )
    return {key: name for key, name in names if name}


@pytest.mark.parametrize(
    "names",
    [
        ("A", "", ""),
        ("A", "", "WEBDAV"),
        ("", "ce01", ""),
        ("A", "ce01", "HTCONDOR-CE"),
        ("B", "", ""),
        ("T2_B", "se02", "WEBDAV"),
        ("B", "se02", "WEBDAV"),
    ],
)
def test_a_downtime_applies_by_the_site_of_the_report_or_the_grid_site(
    names: tuple[str, str, str],
) -> None:
    assert without_endpoints([downtime(*names)], TOPOLOGY) == ""
    assert not_in_topology(downtime(*names), TOPOLOGY) is None


def test_a_downtime_without_an_endpoint_shows_the_first_name_that_is_unknown() -> None:
    def warning(*names: str) -> str:
        return without_endpoints([downtime(*names)], TOPOLOGY)

    assert warning("A", "se01", "webdav", "G1").endswith(
        "downtime G1: site A with host se01 with flavour webdav is not in the topology:"
        " did you mean WEBDAV?"
    )
    assert "site B with host se01 is not in the topology" in warning("B", "se01")
    assert without_endpoints([downtime("A")], []).startswith("1 downtime without an endpoint")


def test_examples_of_a_known_host_come_first_and_the_others_are_counted() -> None:
    elsewhere = [downtime(f"SITE-{number}") for number in range(EXAMPLES)]
    known = downtime("X", "se01", "WEBDAV", number="G7")
    parts = [known] * 2  # announced at different times

    warning = without_endpoints([*elsewhere, *parts], TOPOLOGY)

    assert warning.startswith(f"{EXAMPLES + 1} downtimes ")
    assert ": downtime G7: site X is not in" in warning
    assert warning.endswith("; and 1 more")
