"""The command `sam-db import gocdb`: nightly exports, bad files and kills."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.program.command import BAD_DATA, NO_INPUT, OK
from tests.support.commands import Answer, Workplace, embedded
from tests.support.database.gocdb_files import (
    document,
    downtime,
    nested_downtime,
    page,
    service_endpoint,
    site,
)

DAY_S = 86_400
NOON = 1_793_880_000  # 5 November 2026, 12:00Z
BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE results [\n<!ENTITY a0 "ha">\n'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">\n' for n in range(1, 12))
    + "]>\n<results><SERVICE_ENDPOINT>&a11;</SERVICE_ENDPOINT></results>\n"
)


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return embedded(tmp_path)


def nightly_import(workplace: Workplace, day: int, *options: str) -> Answer:
    return workplace.run("sam-db", "import", "gocdb", "--at", f"2026-11-{day:02}T03:00Z", *options)


def counts(answer: Answer) -> dict[str, tuple[int, ...]]:
    """The numbers of new, changed, ended and unchanged rows, by kind."""
    assert answer.code == OK, str(answer)
    names = ("new", "changed", "ended", "unchanged")
    return {kind["kind"]: tuple(kind[name] for name in names) for kind in answer.json["kinds"]}


def services(numbers: Sequence[int], **changes: Any) -> list[str]:
    return [service_endpoint(host=f"ce{number:03}.example.org", **changes) for number in numbers]


def test_the_database_follows_gocdb_from_import_to_import(workplace: Workplace) -> None:
    sites = document(site("EXAMPLE-LCG2"), site("OTHER & CO", "NGI_CH", []))
    coming = {"start": NOON, "end": NOON + DAY_S}
    workplace.write("sites.xml", sites)
    options = ("--groups", "sites.xml", "--downtimes", "down.xml", "--json", "--endpoints")
    window = ("--window", "2026-10-05..2026-12-05")

    workplace.write("a.xml", page(*services(range(60))) + page(*services(range(60, 100))))
    workplace.write("b.xml", page(*services(range(90, 110))) + page())
    workplace.write("down.xml", document(nested_downtime(("ce001.example.org", "CE"), **coming)))
    first = counts(nightly_import(workplace, 1, *options, "a.xml", "b.xml", *window))

    workplace.write("a.xml", document(*services(range(5), monitored="N"), *services(range(5, 100))))
    workplace.write("down.xml", document(downtime(host="ce002.example.org", **coming)))
    second = counts(nightly_import(workplace, 2, *options, "a.xml", *window))
    repeated = counts(nightly_import(workplace, 3, *options, "a.xml", *window))

    scope, ngi = "siteGroup scope", "siteGroup NGI"
    assert first == {
        "serviceEndpoint": (110, 0, 0, 0),
        ngi: (2, 0, 0, 0),
        scope: (2, 0, 0, 0),
        "downtime": (1, 0, 0, 0),
    }
    assert second == {
        "serviceEndpoint": (0, 5, 10, 95),
        ngi: (0, 0, 0, 2),
        scope: (0, 0, 0, 2),
        "downtime": (1, 0, 1, 0),
    }
    assert {kind: numbers[:3] for kind, numbers in repeated.items()} == dict.fromkeys(
        first, (0, 0, 0)
    )


def test_an_export_that_lacks_half_its_rows_is_refused_unless_accepted(
    workplace: Workplace,
) -> None:
    workplace.write("all.xml", document(*services(range(10))))
    workplace.write("half.xml", document(*services(range(5))))
    nightly_import(workplace, 1, "--endpoints", "all.xml")

    refused = nightly_import(workplace, 2, "--endpoints", "half.xml")
    accepted = nightly_import(
        workplace, 2, "--endpoints", "half.xml", "--accept-shrinking", "--json"
    )

    assert refused.code == BAD_DATA
    assert "5 of 10 rows" in refused.err
    assert counts(accepted)["serviceEndpoint"] == (0, 0, 5, 5)


def test_one_bad_file_refuses_the_whole_import(workplace: Workplace) -> None:
    workplace.write("good.xml", document(*services([1])))
    workplace.write("cut.xml", document(*services([2]))[:-20])
    workplace.write("error.xml", "<error>Invalid method</error>")

    for bad in ("cut.xml", "error.xml"):
        assert (
            nightly_import(workplace, 1, "--endpoints", "good.xml", "--groups", bad).code
            == BAD_DATA
        )
    assert nightly_import(workplace, 1, "--endpoints", "good.xml", "none.xml").code == NO_INPUT

    imported = nightly_import(workplace, 1, "--endpoints", "good.xml", "--json")
    assert counts(imported)["serviceEndpoint"] == (1, 0, 0, 0)


def test_an_entity_bomb_is_refused_at_once(workplace: Workplace) -> None:
    workplace.write("bomb.xml", document(*services([1])) + BOMB)
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss

    answer = nightly_import(workplace, 1, "--endpoints", "bomb.xml")

    assert answer.code == BAD_DATA
    assert "document type (DTD)" in answer.err
    assert time.monotonic() - start < 30
    grown_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before
    assert grown_kb < 300_000


def test_a_killed_import_has_stored_all_rows_or_none(workplace: Workplace) -> None:
    workplace.write("all.xml", document(*services(range(1000))))
    command = ("sam-db", "import", "gocdb", "--endpoints", "all.xml", "--at", "2026-11-01T03:00Z")

    for wait_s in (0.6, 0.9, 1.2):
        with workplace.running(*command) as process:
            time.sleep(wait_s)
            process.send_signal(signal.SIGKILL)

    numbers = counts(nightly_import(workplace, 1, "--endpoints", "all.xml", "--json"))[
        "serviceEndpoint"
    ]
    assert numbers in {(1000, 0, 0, 0), (0, 0, 0, 1000)}
