"""`sam-db import gocdb` as installed: nightly exports, bad files and kills."""

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
def place(tmp_path: Path) -> Workplace:
    return embedded(tmp_path)


def night(place: Workplace, day: int, *options: str) -> Answer:
    return place.run("sam-db", "import", "gocdb", "--at", f"2026-11-{day:02}T03:00Z", *options)


def counts(answer: Answer) -> dict[str, tuple[int, ...]]:
    """new, changed, ended, unchanged by kind"""
    assert answer.code == OK, str(answer)
    names = ("new", "changed", "ended", "unchanged")
    return {kind["kind"]: tuple(kind[name] for name in names) for kind in answer.json["kinds"]}


def services(numbers: Sequence[int], **changes: Any) -> list[str]:
    return [service_endpoint(host=f"ce{number:03}.example.org", **changes) for number in numbers]


def test_night_after_night_the_database_follows_gocdb(place: Workplace) -> None:
    sites = document(site("EXAMPLE-LCG2"), site("OTHER & CO", "NGI_CH", []))
    coming = {"start": NOON, "end": NOON + DAY_S}
    place.write("sites.xml", sites)
    options = ("--groups", "sites.xml", "--downtimes", "down.xml", "--json", "--endpoints")
    window = ("--window", "2026-10-05..2026-12-05")

    place.write("a.xml", page(*services(range(60))) + page(*services(range(60, 100))))
    place.write("b.xml", page(*services(range(90, 110))) + page())
    place.write("down.xml", document(nested_downtime(("ce001.example.org", "CE"), **coming)))
    first = counts(night(place, 1, *options, "a.xml", "b.xml", *window))

    place.write("a.xml", document(*services(range(5), monitored="N"), *services(range(5, 100))))
    place.write("down.xml", document(downtime(host="ce002.example.org", **coming)))
    second = counts(night(place, 2, *options, "a.xml", *window))
    again = counts(night(place, 3, *options, "a.xml", *window))

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
    assert {kind: numbers[:3] for kind, numbers in again.items()} == dict.fromkeys(first, (0, 0, 0))


def test_half_an_export_is_refused_until_it_is_forced(place: Workplace) -> None:
    place.write("all.xml", document(*services(range(10))))
    place.write("half.xml", document(*services(range(5))))
    night(place, 1, "--endpoints", "all.xml")

    refused = night(place, 2, "--endpoints", "half.xml")
    forced = night(place, 2, "--endpoints", "half.xml", "--force", "--json")

    assert refused.code == BAD_DATA
    assert "5 of 10 rows from GOCDB" in refused.err
    assert counts(forced)["serviceEndpoint"] == (0, 0, 5, 5)


def test_one_bad_file_refuses_all_of_them(place: Workplace) -> None:
    place.write("good.xml", document(*services([1])))
    place.write("cut.xml", document(*services([2]))[:-20])
    place.write("error.xml", "<error>Invalid method</error>")

    for bad in ("cut.xml", "error.xml"):
        assert night(place, 1, "--endpoints", "good.xml", "--groups", bad).code == BAD_DATA
    assert night(place, 1, "--endpoints", "good.xml", "none.xml").code == NO_INPUT

    taken = night(place, 1, "--endpoints", "good.xml", "--json")
    assert counts(taken)["serviceEndpoint"] == (1, 0, 0, 0)


def test_an_entity_bomb_is_refused_at_once(place: Workplace) -> None:
    place.write("bomb.xml", document(*services([1])) + BOMB)
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss

    answer = night(place, 1, "--endpoints", "bomb.xml")

    assert (answer.code, "has a document type (DTD)" in answer.err) == (BAD_DATA, True)
    assert time.monotonic() - start < 30
    grown_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before
    assert grown_kb < 300_000


def test_a_killed_import_has_stored_all_or_nothing(place: Workplace) -> None:
    place.write("all.xml", document(*services(range(1000))))
    command = ("sam-db", "import", "gocdb", "--endpoints", "all.xml", "--at", "2026-11-01T03:00Z")

    for wait_s in (0.6, 0.9, 1.2):
        with place.running(*command) as process:
            time.sleep(wait_s)
            process.send_signal(signal.SIGKILL)

    done = counts(night(place, 1, "--endpoints", "all.xml", "--json"))["serviceEndpoint"]
    assert done in {(1000, 0, 0, 0), (0, 0, 0, 1000)}
