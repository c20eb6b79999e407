"""Floods of bad records through `sam-consume run`: the next good record soon becomes a row, the
main loop turns, the disk is not filled, and every message is counted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import STUCK_AFTER
from sam_pipeline.consumer.monitoring.state_file import read_state
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, JSON, MESSAGE_ID, Message
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.site import WAIT_S, Site, fill_spool

BAD_RECORD = b"x\nEOT\n"


def of_one_record(number: int) -> Message:
    return Message({CLASS: "metricOutput", MESSAGE_ID: f"one-{number}"}, BAD_RECORD)


def of_many_records(number: int) -> Message:
    return Message({CLASS: "metricOutput", MESSAGE_ID: f"many-{number}"}, BAD_RECORD * 10_000)


def of_empty_objects(number: int) -> Message:
    body = f"[{','.join(['{}'] * 10_000)}]".encode()
    headers = {CLASS: "metricOutput", MESSAGE_ID: f"json-{number}", CONTENT_TYPE: JSON}
    return Message(headers, body)


def nested_deeply(number: int) -> Message:
    body = f'["{"x" * 100_000}"{(", " + "[" * 500 + "]" * 500) * 500}]'.encode()
    headers = {CLASS: "metricOutput", MESSAGE_ID: f"deep-{number}", CONTENT_TYPE: JSON}
    return Message(headers, body)


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    database = ""
    if request.param == "postgresql":
        database = request.getfixturevalue("postgres_url")
    spools = [f"spool://{tmp_path / 'spool'}"]
    limits = {"dead_letters_per_hour": 100, "dead_letter_bytes_per_hour": 2_000_000}
    return site_of(tmp_path, spools, Subscription("/topic/none"), database=database, **limits)


def test_a_flood_of_bad_records_neither_delays_the_next_one_nor_fills_the_disk(site: Site) -> None:
    ones, manies = map(of_one_record, range(600)), map(of_many_records, range(5))
    objects, deep = map(of_empty_objects, range(5)), map(nested_deeply, range(2))
    flood = [*manies, *objects, *deep, *ones]
    fill_spool(site.config.with_name("spool"), [*flood, *numbered("after", [1])])
    size_before = database_size(site)
    oldest_turn_s = 0.0

    with site.daemon():
        began = time.monotonic()
        while site.rows() == 0:
            assert time.monotonic() - began < WAIT_S
            oldest_turn_s = max(oldest_turn_s, seconds_since_the_last_turn(site))
            time.sleep(0.2)

    assert oldest_turn_s < STUCK_AFTER.total_seconds() / 4
    assert database_size(site) - size_before < 8_000_000
    messages, rows, letters, repeated, summarised = counted(site)
    summaries = site.scalar("SELECT count(*) FROM dead_letter WHERE reason = 'flood'")
    assert (rows, summaries, letters) == (1, 1, 100 + 1)
    assert messages == len(flood) + 1 == rows + letters - summaries + repeated + summarised


def counted(site: Site) -> list[int]:
    """The messages of the audit, and what became of them."""
    letters = ("dead_letters", "repeated_dead_letters", "summarised_dead_letters")
    names = ("messages", "rows", *letters)
    return [int(site.scalar(f"SELECT sum({name}) FROM load_audit")) for name in names]


def database_size(site: Site) -> int:
    if site.database.startswith("sqlite"):
        return sum(path.stat().st_size for path in site.config.parent.glob("sam.db*"))
    return int(site.scalar("SELECT pg_database_size(current_database())"))


def seconds_since_the_last_turn(site: Site) -> float:
    """As the state file says, from which the watchdog decides."""
    try:
        state = read_state([site.config.with_name(site.state)], site.name)
    except NoState:
        return 0.0
    return (state.written_at - state.turned_at).total_seconds()
