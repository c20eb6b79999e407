"""Signing in the library: before a broker or the spool, once, and never without the key."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from sam_pipeline.publisher import (
    ConfigError,
    NoBrokerTookIt,
    Publisher,
    PublisherConfig,
    publish,
)
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.identity.signature import SIGNATURE, SIGNED_AT
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.builders import metric_message, metric_result
from tests.support.signatures import signer_of


@pytest.fixture
def config(tmp_path: Path) -> PublisherConfig:
    make_key(tmp_path / "nagios1.pem")
    return PublisherConfig(spool=tmp_path / "spool", signing_key_file=tmp_path / "nagios1.pem")


@pytest.fixture
def key(config: PublisherConfig) -> Path:
    assert config.signing_key_file is not None
    return config.signing_key_file


def test_what_a_dropped_publisher_had_is_signed_before_it_is_spooled(
    config: PublisherConfig, key: Path, tmp_path: Path
) -> None:
    publisher = Publisher(config)
    publisher.add(metric_result())
    del publisher
    gc.collect()

    spool = DirectoryQueue(tmp_path / "spool")
    assert [signer_of(key, spool.read(name)) for name in spool.names()] == ["nagios1"]


def test_a_lost_message_is_sent_again_with_its_id_and_its_signature(
    config: PublisherConfig, key: Path
) -> None:
    dead = f"stomp://127.0.0.1:{closed_port()}"
    with pytest.raises(NoBrokerTookIt) as lost:
        publish([metric_message()], config._replace(spool=None, brokers=(dead,)))
    with FakeBroker() as broker:
        publication = publish(lost.value.missing, config._replace(brokers=(broker.url,)))

    [receipt] = publication.receipts
    assert receipt.message == lost.value.missing[0]
    assert signer_of(key, receipt.message) == "nagios1"


def test_a_message_that_another_publisher_signed_goes_on_unchanged(
    config: PublisherConfig, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    make_key(other)
    signed = config._replace(signing_key_file=other).outgoing(metric_message())

    assert config.outgoing(signed) == signed
    assert signer_of(other, config.outgoing(signed)) == "other"


def test_without_a_key_a_message_is_as_ever(config: PublisherConfig) -> None:
    message = metric_message()
    unsigned = config._replace(signing_key_file=None)

    assert unsigned.outgoing(message) == unsigned.addressed(message)
    assert not {SIGNATURE, SIGNED_AT} & unsigned.outgoing(message).headers.keys()


def test_a_key_that_cannot_be_used_is_refused_before_anything_is_added(
    config: PublisherConfig, key: Path
) -> None:
    key.write_text("not a key\n")

    with pytest.raises(ConfigError, match=r"nagios1\.pem"):
        Publisher(config)
    with pytest.raises(ConfigError, match=r"nagios1\.pem"):
        publish([metric_message()], config)
