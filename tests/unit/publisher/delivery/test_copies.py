"""Two sets of brokers: each gets every message once, and neither waits for the other."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, Publisher, publish
from sam_pipeline.publisher.delivery.publication import Courier
from sam_pipeline.publisher.settings import load_config
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_result
from tests.support.invoke import Answer, invoke
from tests.support.publishing import RESULT, TOPIC, dead_url, ids, messages, secret, spooled

SPOOL, OF_COPY = "state/spool", "state/copies/region/spool"
LOSSY = 'spool = "/dev/null/spool"'


def configured(
    *main: str, copy: tuple[str, ...], section: str = "", more: str = "", timeout_s: float = 1.5
) -> None:
    Path("sam.toml").write_text(
        f'[publisher]\nbrokers = {json.dumps(main)}\ntimeout = "{timeout_s}s"\n{section}\n'
        f'[[publisher.copy]]\nname = "region"\nbrokers = {json.dumps(copy)}\n{more}\n'
    )


def sam_publish(*arguments: str, code: int = 0) -> Answer:
    answer = invoke("sam-publish", *arguments)
    assert answer.code == code, str(answer)
    return answer


@contextmanager
def two_brokers(**of_the_second: Any) -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with FakeBroker() as one, FakeBroker(**of_the_second) as other:
        yield one, other


def destinations(broker: FakeBroker) -> list[str]:
    return [frame.headers["destination"] for frame in broker.taken]


def test_both_sets_get_each_message_with_the_same_id_and_a_signature_of_its_own() -> None:
    sam_publish("key", "add", "nagios1")
    key = 'signing_key_file = "nagios1.pem"'
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,), section=key, more='destination = "/topic/region"')
        with Publisher() as publisher:
            for _ in range(250):
                publisher.add(metric_result())

    ((name, of_copy),) = publisher.last.copies
    assert one.ids == other.ids == ids(receipt.message for receipt in of_copy.receipts)
    assert (name, len(one.ids), len(publisher.last.receipts)) == ("region", 3, 3)
    first, second = one.taken[0].headers, other.taken[0].headers
    assert first["samKey"] == second["samKey"] == "nagios1"
    assert first["samSignature"] != second["samSignature"]


@pytest.mark.parametrize("down", ["copy", "section"])
def test_a_set_that_hangs_neither_delays_nor_duplicates_the_other(down: str) -> None:
    (message,) = messages(1)
    with two_brokers(mute=True) as (one, hanging):
        urls = (one.url, hanging.url) if down == "copy" else (hanging.url, one.url)
        configured(urls[0], copy=urls[1:])
        publication = publish([message], load_config(None, {}))

    there, elsewhere = (OF_COPY, SPOOL) if down == "copy" else (SPOOL, OF_COPY)
    assert one.ids == spooled(there) == ids([message])
    assert spooled(elsewhere) == []
    assert len(publication.spooled) == (down == "section")


def test_each_set_has_a_memory_and_drains_a_spool_of_its_own() -> None:
    first, second = messages(2)
    with two_brokers() as (one, other):
        configured(one.url, copy=(dead_url(),))
        publish([first], load_config(None, {}))
        assert spooled(OF_COPY) == ids([first])
        of_copy = json.loads(Path("state/copies/region/brokers.json").read_text())
        assert [fact["failures"] for fact in of_copy.values()] == [1]
        assert not Path("state/brokers.json").exists()

        configured(one.url, copy=(other.url,))
        publication = publish([second], load_config(None, {}))

    assert one.ids == ids([first, second])
    assert sorted(other.ids) == sorted(one.ids)
    assert (publication.drained, spooled(OF_COPY)) == (1, [])


def test_messages_that_one_set_lost_are_sent_again_to_that_set_alone() -> None:
    sent = messages(3)
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,), more=LOSSY)
        config = load_config(None, {})
        lossy = config.replace(copy=tuple(t.replace(brokers=(dead_url(),)) for t in config.copy))
        with Courier(lossy) as courier:
            missing: Any = sent
            for _ in range(2):
                with pytest.raises(NoBrokerTookIt, match=r"^copy region: 3 of 3 mess") as caught:
                    courier.deliver(missing, Deadline.after(5))
                missing = caught.value.missing

    assert (one.ids, missing) == (ids(sent), tuple(sent))  # as they were given


def test_the_copy_never_gets_a_credential_of_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "canary")
    secret(Path("own"), "of-the-copy")
    with two_brokers() as (one, other):
        for more in ("", 'user = "region"\npassword_file = "own"'):
            configured(one.url, copy=(other.url,), section='user = "sam"', more=more)
            publish(messages(1), load_config(None, {}))

    logins = [[login.headers.get(n) for n in ("login", "passcode")] for login in other.logins]
    assert logins == [[None, None], ["region", "of-the-copy"]]
    assert {login.headers["passcode"] for login in one.logins} == {"canary"}


def test_a_copy_has_destinations_of_its_own_unless_a_message_or_an_option_names_one() -> None:
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,), more='destination = "/topic/region"')
        sam_publish(*RESULT)
        sam_publish(*RESULT, "--destination", "/topic/x")
        publish(messages(1, destination="/topic/own"), load_config(None, {}))
        table = f'[[publisher.copy.broker]]\nurl = "{other.url}"\nvhost = "region"\n'
        table += 'destinations = { metricOutput = "/topic/of.table" }'
        configured(one.url, copy=(), more=table)
        publish(messages(1), load_config(None, {}))

    assert destinations(one) == [TOPIC, "/topic/x", "/topic/own", TOPIC]
    assert destinations(other) == ["/topic/region", "/topic/x", "/topic/own", "/topic/of.table"]
    assert other.logins[-1].headers["host"] == "region"


def test_brokers_of_the_command_line_get_no_copies() -> None:
    with two_brokers() as (one, other):
        configured(dead_url(), copy=(other.url,))
        sam_publish(*RESULT, "--broker", one.url)
        with Publisher(brokers=[one.url]) as publisher:
            publisher.add(metric_result())

    assert (len(one.taken), other.taken) == (2, [])


def test_the_report_has_a_line_for_each_set() -> None:
    with FakeBroker() as broker:
        configured(broker.url, copy=(dead_url(),))
        published, in_spool = sam_publish(*RESULT).out.splitlines()
        sam_publish(*RESULT, "--require-broker", code=75)
        document = sam_publish(*RESULT, "--json").json

    assert published.startswith("published ")
    assert in_spool.startswith("spooled ") and in_spool.endswith("(copy region)")
    outcomes = [(item["copy"], item["outcome"]) for item in document["messages"]]
    assert outcomes == [(None, "published"), ("region", "spooled")]
    assert [item["copy"] for item in document["unavailable"]] == ["region"]


def test_after_sigterm_no_copy_is_waited_for() -> None:
    with two_brokers(mute=True) as (one, hanging):
        configured(one.url, copy=(hanging.url,), timeout_s=60)
        terminate = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
        terminate.start()
        answer = sam_publish(*RESULT, code=143)
        terminate.join()

    assert "copy region: 0 messages published, 1 spooled" in answer.err
    assert (len(one.ids), spooled(OF_COPY)) == (1, one.ids)


@pytest.mark.parametrize(
    ("more", "stem"),
    [
        ('[[publisher.copy]]\nname = "region"\nbrokers = ["stomp://a"]', "appears twice"),
        ('[[publisher.copy]]\nname = "a/b"\nbrokers = ["stomp://a"]', "expected letters, digits"),
        ('spool = "state/spool"', "is also the spool of [publisher]"),
        ('user = "x"', "would be sent in plain text"),
    ],
)
def test_problems_of_copies_are_reported(more: str, stem: str) -> None:
    configured(copy=("stomp://a.example.org",), more=more)

    with pytest.raises(ConfigError) as caught:
        load_config(None, {})

    assert any(stem in problem for problem in caught.value.problems), caught.value.problems


def test_the_spool_commands_reach_that_of_a_copy() -> None:
    configured(dead_url(), copy=(dead_url(),))
    sam_publish(*RESULT)
    (in_section,), (in_copy,) = spooled(SPOOL), spooled(OF_COPY)

    status = sam_publish("spool", "status", "--json").json
    assert [status["messages"], *(of["messages"] for of in status["copies"])] == [1, 1]
    assert [of["copy"] for of in status["copies"]] == ["region"]
    sam_publish("spool", "drop", "--copy", "region", in_copy)
    assert (spooled(SPOOL), spooled(OF_COPY)) == ([in_section], [])
    assert sam_publish("spool", "list", "--copy", "region", "--json").json == []


def test_all_spools_are_drained_at_the_same_time() -> None:
    configured(dead_url(), copy=(dead_url(),))
    sam_publish(*RESULT)
    with two_brokers(mute=True) as (one, hanging):
        configured(one.url, copy=(hanging.url,))
        sam_publish("spool", "drain", code=69)  # the copy has not got it
        assert (len(one.taken), len(spooled(OF_COPY))) == (1, 1)

        configured(dead_url(), copy=(one.url,))
        Path("state/copies/region/brokers.json").unlink()
        drained = sam_publish("spool", "drain", "--json").json
        assert [drained["sent"], *(of["sent"] for of in drained["copies"])] == [0, 1]

    assert (one.ids[0] == one.ids[1], len(one.ids), spooled(OF_COPY)) == (True, 2, [])
