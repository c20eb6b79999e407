"""What no consumer could load is refused before it is sent; details are shortened."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from sam_pipeline.publisher import PublisherConfig
from sam_pipeline.publisher.brokers.rest import activemq
from sam_pipeline.publisher.delivery.limits import (
    MAX_MESSAGE_BYTES,
    fitted,
    fitted_record,
    refusals_of,
    require_deliverable,
)
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.records.text import ReadRecord, read_wlcg
from tests.support.builders import metric_message, metric_result
from tests.support.publishing import sized

SERVLET = "activemq-rest+http://msg.example.org:8161/api/message"
RABBIT = "rabbitmq-api+https://msg.example.org/%2F/amq.topic"
STOMP = PublisherConfig(brokers=("stomp://msg.example.org",))
AMS = PublisherConfig(brokers=("ams+https://msg.example.org/v1/projects/p",))
REST = PublisherConfig(brokers=(SERVLET,))
MARK = re.compile(r"\n\[(\d+) bytes were left out here\]$")


def with_details(details: str) -> Message:
    return metric_message(metric_result(detailsData=details))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (STOMP, "\u00e9\u20ac\U0001f600"),
        (PublisherConfig(), "x"),
        (AMS, "line\n"),
        *((REST, text) for text in ("x", "\u00e9\u20ac\U0001f600", "a=b&c;{}")),
    ],
)
def test_details_are_shortened_to_what_fits_with_a_mark_and_a_warning(
    config: PublisherConfig, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    details = text * (6_000_000 // len(text.encode()))
    message = with_details(details)

    with caplog.at_level(logging.WARNING):
        shortened = fitted(message, config)

    (read,) = read_wlcg(shortened.body)
    assert isinstance(read, ReadRecord)
    mark = MARK.search(kept := read.fields["detailsData"])
    assert mark is not None
    beginning = kept[: mark.start()]
    left_out = len(details.encode()) - len(beginning.encode())
    assert details.startswith(beginning)
    assert int(mark[1]) == left_out
    assert shortened.headers == message.headers
    assert len(caplog.messages) == 1 and str(left_out) in caplog.text
    if config in (REST, AMS):
        assert refusals_of(shortened, config) == {}
        assert len(shortened.body) > (activemq.MAX_FORM_BYTES if config is REST else 1e6) / 4
    else:
        assert MAX_MESSAGE_BYTES - 10 < len(shortened.body) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize("config", [REST, AMS], ids=["servlet", "AMS"])
def test_details_leave_room_for_a_signature(config: PublisherConfig, tmp_path: Path) -> None:
    make_key(tmp_path / "nagios1.pem")
    config = config._replace(signing_key_file=tmp_path / "nagios1.pem")

    shortened = fitted(with_details("+" * 4_000_000), config)

    for number in range(20):  # each signature is another one
        message = Message({**shortened.headers, MESSAGE_ID: f"{number:33}"}, shortened.body)
        assert refusals_of(config.outgoing(message), config) == {}


def test_what_fits_is_unchanged() -> None:
    message, record = with_details("x" * 150_000), metric_result()

    assert fitted(message, STOMP) is fitted(message, REST) is message
    assert fitted(with_details("x" * 300_000), PublisherConfig(brokers=(SERVLET, RABBIT)))
    assert fitted_record(record, REST, {}) is record


def test_what_is_too_large_without_its_details_is_refused() -> None:
    record = metric_result(performanceData="x" * 5_000_000, detailsData="short")

    with pytest.raises(MessageRefused, match=r"too-large: .*5000\d\d\d bytes"):
        fitted(metric_message(record), STOMP)


@pytest.mark.parametrize(
    ("config", "message", "refused"),
    [
        (STOMP, sized(MAX_MESSAGE_BYTES), ""),
        (STOMP, sized(MAX_MESSAGE_BYTES + 1), "too-large"),
        (PublisherConfig(), sized(MAX_MESSAGE_BYTES + 1), "too-large"),
        (REST, sized(190_000), ""),
        (REST, sized(200_000), "too-large"),
        (PublisherConfig(brokers=(SERVLET, "stomp://b")), sized(200_000), ""),
        (STOMP, metric_message(destination="/topics/x"), "is not a destination"),
        (STOMP, metric_message(destination="/topic/a.>"), "is not a destination"),
        (STOMP, Message({"messageClass": "disk usage"}, b""), "is not a destination"),
    ],
)
def test_a_message_is_refused_that_consumers_or_all_brokers_would_refuse(
    config: PublisherConfig, message: Message, refused: str
) -> None:
    expected = pytest.raises(MessageRefused, match=refused) if refused else nullcontext()
    with expected:
        require_deliverable(message, config)
