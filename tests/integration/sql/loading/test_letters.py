"""Dead letters: neither lost nor without bound; edits, drops, searches and replays of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import Engine, event, text

from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import MOST_REFUSED
from sam_pipeline.schema.messages.message import (
    CLASS,
    HOST,
    USER,
    Message,
    new_message,
)
from sam_pipeline.schema.messages.refused import TOO_LARGE, mark_refused
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.letters import dead_letter
from sam_pipeline.sql.loading.letters.dead_letter import (
    DeadLetter,
    LetterFilter,
    LetterGroup,
    count_dead_letters,
    dead_letter_ids,
    dead_letter_pages,
    drop_dead_letters,
    lock_dead_letters,
    open_by_reason,
    restore_dead_letters,
    show_dead_letter,
)
from sam_pipeline.sql.loading.letters.quota import LetterQuota
from sam_pipeline.sql.loading.letters.store import edit_dead_letter
from sam_pipeline.sql.loading.letters.whereabouts import Whereabouts, whereabouts
from sam_pipeline.sql.loading.load import Audit
from sam_pipeline.sql.loading.replay import (
    PARKED_LETTERS,
    Parked,
    Replayed,
    replay_dead_letters,
    replay_parked,
)
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database import letters as of_loading
from tests.support.database.dialects import only_on
from tests.support.database.letters import ALL_LETTERS, list_dead_letters, only_letter, reasons
from tests.support.database.own_class import add_trigger, drop_trigger, make_class, run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import EXAMPLES, message_of, query, stored

LATER = NOW + timedelta(hours=1)
BROKER = "stomp://msg.example.org:61613"
BAD = metric_result(metricStatus="FINE", detailsData="ü")


def load_now(engine: Engine, *messages: Message, quota: LetterQuota | None = None) -> Counts:
    audit = Audit("site-a", "host", 1, [BROKER] * len(messages))
    quota = quota or LetterQuota(1000, 10**8)
    return of_loading.load_now(engine, *messages, audit=audit, quota=quota)


def letters(engine: Engine) -> list[DeadLetter]:
    return list_dead_letters(engine, ALL_LETTERS)


def bodies(engine: Engine) -> list[bytes]:
    return [show_dead_letter(engine, letter.dead_letter_id).body for letter in letters(engine)]


def replay(engine: Engine, ids: Sequence[int], now: datetime = LATER) -> list[Replayed]:
    with acting_as("loader", engine) as loader:
        return list(replay_dead_letters(loader, ids, lambda: now))


def edit(engine: Engine, number: int, body: bytes | None = None, **headers: str | None) -> int:
    with acting_as("loader", engine) as loader:
        return edit_dead_letter(loader, number, LATER, body, headers)


def drop(engine: Engine, wanted: LetterFilter) -> int:
    with acting_as("loader", engine) as loader:
        return drop_dead_letters(loader, wanted, LATER)


def numbers(of: Sequence[DeadLetter]) -> list[int]:
    return [letter.dead_letter_id for letter in of]


def bad(status: str, **headers: str) -> Message:
    return metric_message(metric_result(metricStatus=status), **headers)


def unheard(number: int, **headers: str) -> Message:
    """A message of an unknown class."""
    message = metric_message(metric_result(summaryData=f"number {number}"), **headers)
    return Message({**message.headers, CLASS: "unheardOf"}, message.body)


# One letter ---------------------------------------------------------------------------------------


def test_other_bytes_under_one_id_are_another_letter_and_the_same_bytes_are_not(
    engine: Engine,
) -> None:
    one, two = (bad(status, samMessageId="same") for status in ("BROKEN-ONE", "BROKEN-TWO"))

    loaded = [load_now(engine, one), load_now(engine, two), load_now(engine, one, two, two)]

    assert [one.dead_letters.total() for one in loaded] == [1, 1, 0]
    assert [one.repeated_dead_letters for one in loaded] == [0, 0, 3]
    assert bodies(engine) == [one.body, two.body]
    drop(engine, LetterFilter())
    load_now(engine, one, bad("THREE", samMessageId="same"))
    assert [letter.state for letter in letters(engine)] == ["dropped", "dropped", "open"]


def test_large_bodies_that_begin_alike_are_letters_of_their_own(engine: Engine) -> None:
    def cut(digest: str) -> Message:
        message = new_message("metricOutput", "the same beginning", message_id="same")
        return mark_refused(message, TOO_LARGE, f"SHA-256 of all: {digest}")

    load_now(engine, cut("one"), cut("two"), cut("one"))

    assert [letter.error[-3:] for letter in letters(engine)] == ["one", "two"]


def test_a_long_body_is_compressed_in_the_table_and_nowhere_else(engine: Engine) -> None:
    headers = metric_message().headers
    long = Message({**headers, CLASS: "unheardOf"}, b"x\xff" * 2 * 1024 * 1024)
    records = metric_message(*(metric_result(hostName=f"ce{n}.org") for n in range(50)))
    longer = Message(long.headers, long.body + b"y")

    load_now(engine, long, Message({**records.headers, CLASS: "metricOutputt"}, records.body))
    load_now(engine, long, longer)  # of which the first is repeated

    assert bodies(engine) == [long.body, records.body, longer.body]
    assert letters(engine)[0].body_bytes == len(long.body)
    with reading(engine) as connection:
        stored_bytes = connection.scalar(text("SELECT sum(length(body)) FROM dead_letter"))
    assert stored_bytes is not None and stored_bytes < 100_000


# Selections and groups ----------------------------------------------------------------------------


def test_letters_are_found_by_reason_class_and_age_a_page_at_a_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter, "PAGE", 3)
    load_now(engine, new_message("unknown", "a: b\nEOT\n"))
    later = [bad(f"WORSE-{number}") for number in range(6)]
    of_loading.load_now(engine, *later, now=NOW + timedelta(days=2))
    ids = numbers(list_dead_letters(engine))

    for wanted, expected in (
        (LetterFilter(), ids),
        (LetterFilter(reason="bad-status"), ids[1:]),
        (LetterFilter(message_class="UNKNOWN"), ids[:1]),
        (LetterFilter(received_before=NOW + timedelta(days=1)), ids[:1]),
        (LetterFilter(reason="bad-status", message_class="unknown"), []),
    ):
        assert dead_letter_ids(engine, wanted) == expected
        assert numbers(list_dead_letters(engine, wanted)) == expected
        assert numbers(list_dead_letters(engine, wanted, limit=2)) == expected[-2:]
    pages = dead_letter_pages(engine, ALL_LETTERS, ids[1], 4)
    assert [*map(numbers, pages)] == [ids[2:5], ids[5:6]]


def test_letters_are_counted_by_sender_reason_and_class(engine: Engine) -> None:
    """A sender is its identity, or else what it claims, or else its login."""
    claims = {HOST: "wn17", USER: "nagios"}
    load_now(
        engine,
        unheard(1, **{IDENTITY: "key:nagios1", **claims}),
        unheard(2, **{IDENTITY: "key:nagios1"}),
        unheard(3, **claims),
        unheard(4, **claims, JMSXUserID="probe"),
        unheard(5, **claims, JMSXUserID="probe"),
        unheard(6, JMSXUserID="probe"),
        metric_message(BAD, **{HOST: "wn17"}),
    )
    of_loading.load_now(engine, unheard(7), now=LATER, audit=Audit("site-a", "host", 1, [BROKER]))

    by_sender = count_dead_letters(engine, ALL_LETTERS, "sender")
    by_reason = count_dead_letters(engine, ALL_LETTERS, "reason")

    assert [(group.name, group.known_by, group.letters) for group in by_sender] == [
        ("nagios@wn17", "claimed", 3),
        ("key:nagios1", "established", 2),
        ("?@wn17", "claimed", 1),
        (f"probe at {BROKER}", "login", 1),
        (BROKER, "source", 1),
    ]
    newest = letters(engine)[-1].dead_letter_id
    assert by_reason[0] == LetterGroup("unknown-class", 7, NOW, LATER, newest)


# Edits --------------------------------------------------------------------------------------------


def test_an_edited_letter_can_be_edited_again_and_every_edition_is_kept(engine: Engine) -> None:
    load_now(engine, new_message("metricoutputt", write_wlcg(BAD)))
    first = only_letter(engine).dead_letter_id
    second = edit(engine, first, messageClass="metricOutput")

    third = edit(engine, second, b"good")

    editions = [show_dead_letter(engine, number) for number in (first, second, third)]
    assert [edition.letter.edited_from for edition in editions] == [None, first, second]
    classes = [edition.letter.message_class for edition in editions]
    assert classes == ["metricoutputt", "metricOutput", "metricOutput"]
    assert editions[2].body == b"good"
    assert numbers(list_dead_letters(engine)) == [third]
    assert restore_dead_letters(engine, LetterFilter(ids=[first, second], state=None), NOW) == 0
    drop(engine, LetterFilter())
    for number, body, why in (
        (first, b"other", f"dead letter {second}"),
        (third, b"other", "is dropped"),
    ):
        with pytest.raises(EditRefused, match=why):
            edit(engine, number, body)


def test_no_message_can_pass_for_an_edition_or_for_a_summary(engine: Engine) -> None:
    load_now(engine, bad("FINE", samMessageId="m#edited-17"))
    [edition] = letters(engine)
    assert edition.edited_from is None and edition.message_id.startswith("sha256:")
    load_now(engine, bad("x"), quota=LetterQuota(0, 10**6))
    [*_, summary] = letters(engine)

    load_now(engine, new_message("nowhere", "", message_id=summary.message_id))

    assert [reason for _, reason in reasons(engine)] == ["bad-status", "flood", "unknown-class"]


# Whole messages -----------------------------------------------------------------------------------


def mixed(refused: int) -> Message:
    """A good record, and refused ones for two reasons."""
    records = [metric_result(metricStatus="FINE"), metric_result(metricName="")]
    return metric_message(metric_result(), *(records[number % 2] for number in range(refused)))


def test_more_than_twenty_refused_records_are_one_letter_of_the_message(engine: Engine) -> None:
    fits, message = mixed(MOST_REFUSED), mixed(MOST_REFUSED + 1)
    assert load_now(engine, fits).dead_letters == {"bad-status": 10, "missing-key": 10}

    assert load_now(engine, message).dead_letters == {"mixed": 1}

    letter = letters(engine)[-1]
    assert (letter.record_number, bodies(engine)[-1]) == (0, message.body)
    first, *records = letter.error.split("\n")
    assert (first.partition(" ")[0], len(records)) == (f"{MOST_REFUSED + 1}", MOST_REFUSED)


def test_every_good_record_is_a_row_however_many_the_database_refuses(own_engine: Engine) -> None:
    make_class(own_engine, "note", words="text")
    refuse = "IF NEW.words = 'x' THEN RAISE 'words: no'; END IF;"
    if own_engine.dialect.name == "sqlite":
        refuse = "SELECT RAISE(ABORT, 'words: no') WHERE NEW.words = 'x';"
    add_trigger(own_engine, "note", f'{refuse} INSERT INTO "kept note" VALUES (NEW.words);')
    records = ["words: x" if n % 3 else f"words: good {n}" for n in range(600)]
    records += ["no key"] * 10

    loaded = load_now(own_engine, new_message("note", "\nEOT\n".join([*records, ""])))

    assert (loaded.rows, loaded.dead_letters) == (200, {"mixed": 1})
    assert query(own_engine, "SELECT count(DISTINCT words) FROM note") == [(200,)]
    assert only_letter(own_engine).error.startswith("410 ")


def test_a_letter_of_a_whole_message_stays_the_same_while_its_records_are_bad(
    engine: Engine,
) -> None:
    message = mixed(MOST_REFUSED + 5)
    load_now(engine, message)
    before = only_letter(engine)

    [outcome] = replay(engine, [before.dead_letter_id])

    assert (outcome.outcome, outcome.state, outcome.reason) == ("failed", "open", "mixed")
    after = only_letter(engine)
    assert (after.dead_letter_id, after.error) == (before.dead_letter_id, before.error)
    assert bodies(engine) == [message.body]
    assert load_now(engine, message).repeated_dead_letters == 1
    assert len(stored(engine, "metricOutput")) == 1


# Summaries ----------------------------------------------------------------------------------------


def flood(count: int, start: int = 0, user: str = "alice") -> list[Message]:
    return [bad(f"BROKEN-{start + at}", JMSXUserID=user) for at in range(count)]


def test_letters_beyond_the_limit_are_counted_in_one_summary(engine: Engine) -> None:
    quota = LetterQuota(10, 10**6)

    first = load_now(engine, metric_message(), *flood(30), quota=quota)
    second = load_now(engine, *flood(30, 30), *flood(5, user="bob"), quota=quota)

    assert (first.rows, first.dead_letters) == (1, {"bad-status": 10, "flood": 1})
    assert second.dead_letters == {"bad-status": 5}
    assert (first.summarised_dead_letters, second.summarised_dead_letters) == (20, 30)
    [summary] = list_dead_letters(engine, LetterFilter(reason="flood"))
    line, *samples = summary.error.split("\n")
    assert line.startswith("50 ") and "bad-status 50" in line and "alice" in line
    assert len(samples) == 20
    counted = "dead_letters, repeated_dead_letters, summarised_dead_letters"
    audited = query(engine, f"SELECT {counted} FROM load_audit ORDER BY batch_id")
    assert audited == [(11, 0, 20), (5, 0, 30)]


def test_a_repeated_letter_takes_no_room_from_another_one(engine: Engine) -> None:
    quota = LetterQuota(10, 10**6)
    repeated = flood(1)
    for _ in range(20):
        load_now(engine, *repeated, quota=quota)

    assert load_now(engine, *flood(9, 1), quota=quota).dead_letters == {"bad-status": 9}


def test_a_summary_can_be_dropped_but_neither_edited_nor_replayed(engine: Engine) -> None:
    """And it is open again when more is counted."""
    quota = LetterQuota(0, 10**6)
    load_now(engine, *flood(2), quota=quota)
    [summary] = letters(engine)

    [outcome] = replay(engine, [summary.dead_letter_id])
    with pytest.raises(EditRefused, match="dropped"):
        edit(engine, summary.dead_letter_id, b"x")
    drop(engine, LetterFilter())

    assert (outcome.outcome, outcome.state, outcome.reason) == ("failed", "open", "flood")
    assert only_letter(engine).state == "dropped"
    load_now(engine, *flood(3), quota=quota)
    assert only_letter(engine).state == "open"
    assert only_letter(engine).error.startswith("5 ")


# Where the database has a message -----------------------------------------------------------------

DAY = timedelta(days=1)


def where(engine: Engine, message_id: str, days: int = 2) -> Whereabouts:
    """As the loader, which can't read results."""
    with acting_as("loader", engine) as loader:
        return whereabouts(loader, message_id, NOW - days * DAY, NOW + DAY)


def test_rows_and_letters_of_one_message_are_found(engine: Engine) -> None:
    old = metric_message(metric_result(timestamp="2026-11-10T12:00:00Z"))
    message = metric_message(metric_result(), BAD, metric_result(hostName="ce02.example.org"))
    too_long_for_the_index = metric_message(BAD, samMessageId="x" * 1000)
    load_now(engine, message, metric_message(metric_result(hostName="other.org")))
    load_now(engine, too_long_for_the_index, old)
    edit(engine, letters(engine)[0].dead_letter_id, b"x")

    found = where(engine, message.message_id)

    assert [row.key["hostName"] for row in found.rows] == ["ce01.example.org", "ce02.example.org"]
    assert [(letter.record_number, letter.reason, letter.state) for letter in found.letters] == [
        (2, "bad-status", "dropped"),
        (2, "bad-status", "open"),
    ]
    assert found.is_known and found.not_searched == []
    assert len(where(engine, "x" * 1000).letters) == 1
    assert not where(engine, old.message_id).is_known
    assert len(where(engine, old.message_id, days=11).rows) == 1


def test_rows_of_every_class_are_found(engine: Engine) -> None:
    for view, record in EXAMPLES.items():
        message = message_of(view, record)
        load_now(engine, message)

        [row] = where(engine, message.message_id).rows

        assert (row.message_class, row.holds) == (view, True)
        sent = {**record, "monitoringHost": "wn17.example.org"}
        assert row.key.items() <= sent.items()
        assert row.received_at is not None


def test_rows_of_a_class_of_the_site_are_found_where_the_login_may_read_it(
    own_engine: Engine,
) -> None:
    make_class(own_engine, "ownClass", a="text", messageId="text")
    run(own_engine, "INSERT INTO \"kept ownClass\" VALUES ('x', 'm-1')")

    [row] = whereabouts(own_engine, "m-1", NOW, NOW).rows

    assert row.key["a"] == "x"
    if own_engine.dialect.name == "postgresql":
        as_loader = where(own_engine, "m-1")
        assert as_loader.rows == []
        assert as_loader.not_searched == ["ownclass (permission denied)"]


# Replays: single, in bulk, concurrent and automatic -----------------------------------------------

TWO_DAYS_LATER = NOW + timedelta(days=2)
COUNT = "SELECT count(*) FROM metricOutput"


def replay_some_parked(engine: Engine) -> Parked:
    with acting_as("loader", engine) as loader:
        return replay_parked(loader, lambda: LATER)


def in_the_future() -> Message:
    """A message whose second and third record are bad now, and good two days later."""
    late = [metric_result(timestamp=f"2026-11-22T1{hour}:00:00Z") for hour in (0, 1)]
    return metric_message(metric_result(), *late, destination="/topic/x")


def many_results(count: int) -> list[Message]:
    start = 1_763_600_000
    return [metric_message(metric_result(timestamp=str(start + at))) for at in range(count)]


def test_a_replay_loads_the_good_letters_with_the_id_of_their_message(engine: Engine) -> None:
    bad = metric_message(metric_result(metricStatus="FINE"), metric_result(metricName=""))
    message = in_the_future()
    load_now(engine, bad, message)

    replayed = replay(engine, dead_letter_ids(engine), TWO_DAYS_LATER)

    assert [(one.outcome, one.state, one.all_loaded, one.reason) for one in replayed] == [
        ("failed", "open", False, "bad-status"),
        ("failed", "open", False, "missing-key"),
        *[("loaded", "replayed", True, "in-the-future")] * 2,
    ]
    assert open_by_reason(engine) == {"bad-status": 1, "missing-key": 1}
    assert [row["messageId"] for row in stored(engine, "metricOutput")] == [message.message_id] * 3


def test_a_replayed_or_dropped_letter_is_not_loaded_again(engine: Engine) -> None:
    load_now(engine, in_the_future())
    first, second = dead_letter_ids(engine)
    replay(engine, [first], TWO_DAYS_LATER)
    drop_dead_letters(engine, LetterFilter(), LATER)
    run(engine, "DELETE FROM metric_result")

    outcomes = replay(engine, [first, second], TWO_DAYS_LATER)

    assert [(outcome.outcome, outcome.state) for outcome in outcomes] == [
        ("skipped", "replayed"),
        ("skipped", "dropped"),
    ]
    assert stored(engine, "metricOutput") == []


def test_a_whole_message_is_replayed_and_its_bad_records_become_letters(
    own_engine: Engine,
) -> None:
    repair = drop_trigger(own_engine, "metricOutput")
    message = metric_message(metric_result(), metric_result(metricStatus="FINE"))
    load_now(own_engine, message)
    [letter] = dead_letter_ids(own_engine)
    [still_broken] = replay(own_engine, [letter])
    assert (still_broken.state, still_broken.reason) == ("open", "class-broken")
    assert only_letter(own_engine).changed_at == LATER

    run(own_engine, repair)
    [outcome] = replay(own_engine, [letter])

    [new] = list_dead_letters(own_engine)
    assert (outcome.outcome, outcome.state) == ("replaced", "replayed")
    assert (outcome.dead_letters, outcome.all_loaded) == ((new.dead_letter_id,), False)
    assert len(stored(own_engine, "metricOutput")) == 1
    assert (new.record_number, new.reason, new.message_id) == (2, "bad-status", message.message_id)


def test_concurrent_replays_load_every_letter_once(own_engine: Engine) -> None:
    repair = drop_trigger(own_engine, "metricOutput")
    load_now(own_engine, *many_results(1200))
    run(own_engine, repair)
    ids = dead_letter_ids(own_engine)

    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: replay(own_engine, ids), range(3), timeout=60))

    outcomes = [outcome for run in runs for outcome in run]
    assert {outcome.state for outcome in outcomes} == {"replayed"}
    loaded = [outcome.dead_letter_id for outcome in outcomes if outcome.outcome == "loaded"]
    assert sorted(loaded) == ids
    assert query(own_engine, COUNT) == [(1200,)]


@only_on("postgresql", "own_url")  # SQLite has neither EXECUTE of a made statement nor row locks
def test_a_letter_that_breaks_its_class_does_not_keep_others_from_loading(
    own_engine: Engine,
) -> None:
    """The trigger inserts into the table that a record names; one record names a missing table."""
    make_class(own_engine, "note", words="text")
    run(own_engine, "CREATE TABLE good_note (words text)", 'DROP TRIGGER "note insert" ON note')
    words = ["good" if at != 70 else "no" for at in range(200)]
    load_now(own_engine, *(new_message("note", f"words: {word}\nEOT\n") for word in words))
    assert open_by_reason(own_engine) == {"class-broken": 200}
    into = "EXECUTE format('INSERT INTO %I VALUES ($1)', NEW.words || '_note') USING NEW.words;"
    add_trigger(own_engine, "note", into)

    outcomes = replay(own_engine, dead_letter_ids(own_engine))

    assert [outcome.outcome for outcome in outcomes].count("loaded") == 199
    assert "no_note" in outcomes[70].error
    assert query(own_engine, "SELECT count(*) FROM good_note") == [(199,)]


def test_a_letter_of_many_days_is_replayed_in_several_transactions(own_engine: Engine) -> None:
    """And so are many letters of a few days each."""
    results = [
        metric_result(timestamp=f"{NOW - timedelta(days=n):%Y-%m-%dT12:00:00Z}") for n in range(120)
    ]
    bad = metric_result(metricStatus="FINE")
    repair = drop_trigger(own_engine, "metricOutput")
    load_now(own_engine, metric_message(*results[:70], bad), *map(metric_message, results[70:]))
    numbers = dead_letter_ids(own_engine)
    run(own_engine, repair)
    stored_before_commits = [0]
    counting = threading.Lock()

    def before_commit(_: object) -> None:
        if not counting.locked():  # counting commits, too
            with counting:  # the days with results that other sessions see
                stored_before_commits.append(query(own_engine, COUNT)[0][0])

    with acting_as("loader", own_engine) as loader:
        event.listen(loader, "commit", before_commit)
        replayed = list(replay_dead_letters(loader, numbers, lambda: LATER))
        event.remove(loader, "commit", before_commit)

    assert {letter.outcome for letter in replayed} == {"loaded", "replaced"}
    assert query(own_engine, COUNT) == [(120,)]
    days = [*stored_before_commits, 120]
    assert max(after - before for before, after in pairwise(days)) <= 50


# By the consumer itself ---------------------------------------------------------------------------


def test_parked_letters_are_loaded_once_the_view_works_again(own_engine: Engine) -> None:
    """Another class that stays broken keeps only its own letters."""
    repair = drop_trigger(own_engine, "metricOutput")
    drop_trigger(own_engine, "downtime")
    load_now(
        own_engine, *many_results(700), new_message("downtime", "hostName: a.example.org\nEOT\n")
    )
    assert replay_some_parked(own_engine) == Parked(0, any=True)
    run(own_engine, repair)

    turns = [replay_some_parked(own_engine)]
    while turns[-1].loaded:
        turns.append(replay_some_parked(own_engine))

    assert sum(turn.loaded for turn in turns) == 700
    assert max(turn.loaded for turn in turns) <= PARKED_LETTERS + 2
    assert {turn.message_class for turn in turns[:-1]} == {"metricOutput"}
    assert turns[-1] == Parked(0, any=True)
    assert query(own_engine, COUNT) == [(700,)]
    [letter] = list_dead_letters(own_engine)
    assert letter.message_class == "downtime"
    assert query(own_engine, "SELECT * FROM operation_log") == []  # no operator did it


@only_on("postgresql", "own_url")
def test_a_replay_does_not_wait_for_letters_that_another_one_has_locked(own_engine: Engine) -> None:
    repair = drop_trigger(own_engine, "metricOutput")
    load_now(own_engine, *many_results(3))
    run(own_engine, repair)

    with writing(own_engine) as connection:
        lock_dead_letters(connection, dead_letter_ids(own_engine))
        meanwhile = replay_some_parked(own_engine)

    assert meanwhile == Parked(0, any=True)
    assert replay_some_parked(own_engine).loaded == 3
