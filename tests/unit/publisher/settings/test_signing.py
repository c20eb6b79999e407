"""A publisher with a key: whatever it sends or spools can be verified, and nothing is unsigned."""

from __future__ import annotations

import gc
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from sam_pipeline.publisher import ConfigError, NoBrokerTookIt, Publisher, PublisherConfig, publish
from sam_pipeline.publisher.delivery.outgoing import outgoing
from sam_pipeline.schema.identity.keys import make_key, parse_public_key
from sam_pipeline.schema.identity.signature import load_signer
from sam_pipeline.schema.messages.message import SIGNATURE, SIGNED_AT, Message
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message, metric_result
from tests.support.invoke import Answer, invoke
from tests.support.publishing import RESULT, config_for, dead_url, messages, signer_of, spooled

KEY = Path("nagios1.pem")
SPOOL = Path("state/spool")


@pytest.fixture(autouse=True)
def signing(own_surroundings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, and a configuration that names it."""
    make_key(KEY)
    monkeypatch.setenv("SAM_PUBLISHER_SIGNING_KEY_FILE", str(KEY.absolute()))


@pytest.fixture
def config() -> PublisherConfig:
    return config_for(signing_key_file=KEY.absolute())


def sam_publish(*arguments: str, stdin: str = "", code: int = 0) -> Answer:
    answer = invoke("sam-publish", *arguments, stdin=stdin)
    assert answer.code == code, str(answer)
    return answer


def signers(broker: FakeBroker) -> list[str | None]:
    return [signer_of(KEY, Message(frame.headers, frame.body)) for frame in broker.taken]


def spooled_signers(path: Path) -> list[str | None]:
    queue = DirectoryQueue(path)
    return [signer_of(KEY, queue.read(name)) for name in queue.names()]


@pytest.mark.parametrize(
    "arguments", [(*RESULT, "--class", "ownClass"), ("send",), ("send", "--raw")], ids=" ".join
)
def test_every_command_signs_what_it_sends_and_what_it_spools(arguments: tuple[str, ...]) -> None:
    stdin = write_wlcg(metric_result()) * 3
    with FakeBroker() as broker:
        sam_publish(*arguments, "--broker", broker.url, stdin=stdin)
    sam_publish(*arguments, "--broker", dead_url(), stdin=stdin)
    shown = sam_publish(*arguments, "--dry-run", stdin=stdin).out

    assert set(signers(broker)) == {"nagios1"}
    assert spooled_signers(SPOOL) == signers(broker)
    element = json.loads(shown.splitlines()[0])
    message = Message(element["header"], element["body"].encode())
    assert signer_of(KEY, message) == "nagios1"


def test_the_library_signs_also_what_it_spools_when_it_was_dropped(config: PublisherConfig) -> None:
    publisher = Publisher(config)
    publisher.add(metric_result())
    del publisher
    gc.collect()

    assert spooled_signers(Path("spool")) == ["nagios1"]


def test_what_was_spooled_is_sent_as_it_was_signed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write to a spool must not be able to make a publisher sign."""
    sam_publish(*RESULT)
    with monkeypatch.context() as patch:
        patch.setenv("SAM_PUBLISHER_SIGNING_KEY_FILE", "")
        sam_publish(*RESULT)
    queue = DirectoryQueue(SPOOL)
    before = [queue.read(name).headers.get(SIGNATURE) for name in queue.names()]

    with FakeBroker() as broker:
        sam_publish(*RESULT, "--broker", broker.url)

    new, *earlier = (frame.headers.get(SIGNATURE) for frame in broker.taken)
    assert new
    assert earlier == before
    assert [bool(signature) for signature in before] == [True, False]


def test_a_lost_message_is_sent_again_with_its_signature(config: PublisherConfig) -> None:
    with pytest.raises(NoBrokerTookIt) as lost:
        publish(messages(1), config.replace(spool=None, brokers=(dead_url(),)))
    with FakeBroker() as broker:
        publication = publish(lost.value.missing, config.replace(brokers=(broker.url,)))

    [receipt] = publication.receipts
    assert receipt.message == lost.value.missing[0]
    assert signer_of(KEY, receipt.message) == "nagios1"


def test_a_message_of_another_publisher_goes_on_unchanged(config: PublisherConfig) -> None:
    other, message = Path("other.pem"), metric_message()
    make_key(other)
    signed = outgoing(message, config.replace(signing_key_file=other))

    assert outgoing(signed, config) == signed
    assert signer_of(other, signed) == "other"
    unsigned = outgoing(message, config.replace(signing_key_file=None))
    assert not {SIGNATURE, SIGNED_AT} & unsigned.headers.keys()


def test_a_key_is_made_shown_and_named_by_the_check() -> None:
    KEY.unlink()
    made = sam_publish("key", "add", "nagios1")
    shown = sam_publish("key", "show")
    document = sam_publish("key", "show", str(KEY), "--json").json

    assert (made.out, shown.err, str(KEY) in made.err) == (shown.out, "", True)
    lines = tomllib.loads(made.out)
    assert lines["is"] == [document["identity"]] == ["key:nagios1"]
    assert lines["keys"] == [document["public_key"]]
    assert parse_public_key(document["public_key"]) == load_signer(KEY).public_key()
    assert "nagios1.pem" in sam_publish("key", "add", "nagios1", code=78).err
    check = ("check", "--broker", "stomp://msg.example.org")
    assert sam_publish(*check, "--json").json["signing"] == {"key": "nagios1", "tool": "PyNaCl"}
    assert "nagios1" in sam_publish(*check).out


SPOILT: dict[str, Callable[[], object]] = {
    "missing": KEY.unlink,
    "no key": lambda: KEY.write_text("not a key\n"),
    "readable": lambda: KEY.chmod(0o644),
}


@pytest.mark.parametrize("key", SPOILT)
def test_with_a_bad_key_nothing_is_sent_unsigned(config: PublisherConfig, key: str) -> None:
    SPOILT[key]()

    with FakeBroker() as broker:
        for command in (RESULT, ("check",)):
            answer = sam_publish(*command, "--broker", broker.url, code=78)
            assert "nagios1.pem" in answer.err
        with pytest.raises(ConfigError, match=r"nagios1\.pem"):
            publish(messages(1), config.replace(brokers=(broker.url,)))

    assert (broker.taken, spooled(), spooled(SPOOL)) == ([], [], [])
