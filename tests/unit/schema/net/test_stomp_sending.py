"""What a sender says of itself and adds to its frames."""

from __future__ import annotations

from contextlib import closing

from sam_pipeline.schema.net.channel import connect
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.sender import StompSender
from sam_pipeline.schema.net.stomp.session import SendingSession
from sam_pipeline.schema.net.stomp_session import VIRTUAL_HOST
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message


def session_at(broker: FakeBroker, deadline: Deadline, vhost: str | None) -> SendingSession:
    channel = connect(HOST, int(broker.url.rpartition(":")[2]), deadline)
    return SendingSession(channel, None, None, None, deadline, vhost)


def test_connect_names_the_virtual_host() -> None:
    deadline = Deadline.after(5)
    with FakeBroker() as broker:
        for vhost in ("monitoring", None):
            session_at(broker, deadline, vhost).close()

    assert [login.headers["host"] for login in broker.logins] == ["monitoring", VIRTUAL_HOST]


def test_the_headers_of_a_sender_are_in_every_send() -> None:
    messages = [metric_message(destination="/queue/x") for _ in range(3)]
    deadline = Deadline.after(5)
    with (
        FakeBroker() as broker,
        closing(
            StompSender(lambda until: session_at(broker, until, None), deadline, {"expires": "9"})
        ) as sender,
    ):
        assert sorted(sender.send(messages, deadline)) == [0, 1, 2]

    assert [frame.headers["expires"] for frame in broker.taken] == ["9"] * 3
