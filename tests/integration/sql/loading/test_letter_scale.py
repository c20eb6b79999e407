"""Many dead letters and large ones: their bodies, their pages, and their groups."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.message import HOST, PROGRAM, USER, Message
from sam_pipeline.schema.messages.origin import LONGEST_CLAIM
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters import dead_letter
from sam_pipeline.sql.loading.letters.body import COMPRESSED_FROM, original_body, stored_body
from sam_pipeline.sql.loading.letters.dead_letter import (
    DeadLetter,
    LetterFilter,
    before_newest,
    dead_letter_pages,
    number_of_dead_letters,
    show_dead_letter,
)
from sam_pipeline.sql.loading.letters.groups import LetterGroup, count_dead_letters
from sam_pipeline.sql.loading.load import load
from sam_pipeline.sql.loading.replay import replay_dead_letters
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as

BROKER = "stomp://msg.example.org:61613"
ALL = LetterFilter(state=None)
BAD = metric_result(metricStatus="FINE")


def park(engine: Engine, *messages: Message) -> list[DeadLetter]:
    """Load messages that can't be loaded; returns all letters."""
    with acting_as("loader", engine) as loader:
        audit = Audit("site-a", "host", 1, [BROKER] * len(messages))
        load(loader, Catalogue(loader), messages, NOW, audit=audit)
        return list_dead_letters(loader, ALL)


def of_unknown_class(number: int, **headers: str) -> Message:
    message = metric_message(metric_result(summaryData=f"number {number}"), **headers)
    return Message({**message.headers, "messageClass": "unheardOf"}, message.body)


def test_a_long_body_is_compressed_in_the_table_and_nowhere_else(engine: Engine) -> None:
    body = b"x\xff" * 2 * 1024 * 1024
    message = metric_message()
    [letter] = park(engine, Message({**message.headers, "messageClass": "unheardOf"}, body))

    content = show_dead_letter(engine, letter.dead_letter_id)

    with reading(engine) as connection:
        stored = connection.execute(text("SELECT length(body) FROM dead_letter")).scalar_one()
    assert content.body == body
    assert (letter.body_bytes, stored < 100_000) == (len(body), True)


def test_the_digest_in_the_key_is_that_of_the_original_body(engine: Engine) -> None:
    message = of_unknown_class(1, padding="x")
    long = Message(message.headers, message.body * 100)

    assert len(park(engine, long)) == 1
    assert len(park(engine, long)) == 1
    assert len(park(engine, Message(message.headers, message.body * 99))) == 2


def test_a_compressed_letter_is_replayed_whole(engine: Engine) -> None:
    records = [metric_result(hostName=f"ce{number}.example.org") for number in range(50)]
    message = metric_message(*records)
    headers = {**message.headers, "messageClass": "metricOutputt"}
    [letter] = park(engine, Message(headers, message.body))
    with acting_as("owner", engine) as owner, owner.begin() as connection:
        connection.execute(
            text("UPDATE dead_letter SET headers = replace(headers, 'Outputt', 'Output')")
        )

    with acting_as("loader", engine) as loader:
        [outcome] = replay_dead_letters(loader, [letter.dead_letter_id], lambda: NOW)

    assert outcome.all_loaded
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM metricOutput")).scalar_one() == 50


@pytest.mark.parametrize(
    ("body", "compressed"),
    [
        (b"x" * (COMPRESSED_FROM - 1), False),
        (b"x" * COMPRESSED_FROM, True),
        (os.urandom(5000), False),
        (b"", False),
    ],
)
def test_only_bodies_that_become_shorter_are_compressed(body: bytes, compressed: bool) -> None:
    stored = stored_body(body)

    assert stored.compressed is compressed
    assert stored.body_bytes == len(body)
    assert original_body(stored) == body


def test_a_body_never_becomes_longer_than_the_table_says() -> None:
    stored = stored_body(b"x" * 1_000_000)

    assert len(original_body(stored._replace(body_bytes=10))) == 10


def test_a_letter_has_the_origin_that_its_message_claims(engine: Engine) -> None:
    claims = {HOST: "wn17", PROGRAM: "sam-publish/0.1.0 result", USER: "x" * 1000}

    [letter] = park(engine, of_unknown_class(1, **claims))

    assert letter.claimed_host == "wn17"
    assert letter.claimed_program == "sam-publish/0.1.0 result"
    assert letter.claimed_user == "x" * LONGEST_CLAIM


def test_pages_have_each_letter_once_and_limits_count_from_either_end(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter, "PAGE", 3)
    ids = [letter.dead_letter_id for letter in park(engine, *map(of_unknown_class, range(8)))]

    def paged_ids(after: int = 0, limit: int = 100) -> list[list[int]]:
        pages = dead_letter_pages(engine, ALL, after, limit)
        return [[letter.dead_letter_id for letter in page] for page in pages]

    assert paged_ids() == [ids[:3], ids[3:6], ids[6:]]
    assert paged_ids(limit=5) == [ids[:3], ids[3:5]]
    assert paged_ids(ids[5]) == [ids[6:]]
    assert before_newest(engine, ALL, 3) == ids[4]
    assert before_newest(engine, ALL, 8) == 0
    assert [letter.dead_letter_id for letter in list_dead_letters(engine, ALL, 2)] == ids[6:]
    assert number_of_dead_letters(engine, ALL) == 8


def test_a_sender_is_its_identity_or_else_what_it_claims_or_else_its_login(engine: Engine) -> None:
    claims = {HOST: "wn17", USER: "nagios"}
    park(
        engine,
        of_unknown_class(1, **{IDENTITY: "key:nagios1", **claims}),
        of_unknown_class(2, **{IDENTITY: "key:nagios1"}),
        of_unknown_class(3, **claims),
        of_unknown_class(4, **claims, JMSXUserID="probe"),
        of_unknown_class(5, **claims, JMSXUserID="probe"),
        of_unknown_class(6, JMSXUserID="probe"),
        metric_message(BAD, **{HOST: "wn17"}),
        of_unknown_class(7),
    )

    groups = count_dead_letters(engine, ALL, "sender")

    assert [(group.name, group.known_by, group.letters) for group in groups] == [
        ("nagios@wn17", "claimed", 3),
        ("key:nagios1", "established", 2),
        ("?@wn17", "claimed", 1),
        (f"probe at {BROKER}", "login", 1),
        (BROKER, "source", 1),
    ]


def test_groups_have_first_and_last_times_and_the_newest_letter(engine: Engine) -> None:
    park(engine, of_unknown_class(1), metric_message(BAD))
    with acting_as("loader", engine) as loader:
        later = NOW + timedelta(hours=1)
        audit = Audit("site-a", "host", 1, [BROKER])
        load(loader, Catalogue(loader), [of_unknown_class(2)], later, audit=audit)
    letters = list_dead_letters(engine, ALL)

    by_reason = count_dead_letters(engine, ALL, "reason")
    by_class = count_dead_letters(engine, ALL, "class", limit=1)
    selected = count_dead_letters(engine, LetterFilter(reason="bad-status"), "class")

    newest = letters[-1].dead_letter_id
    assert by_reason[0] == LetterGroup("unknown-class", 2, NOW, later, newest)
    assert [group.name for group in by_reason] == ["unknown-class", "bad-status"]
    assert [group.name for group in by_class] == ["unheardOf"]
    assert [(group.name, group.letters) for group in selected] == [("metricOutput", 1)]
