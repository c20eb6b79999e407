"""Which losses of a broker need somebody to act, so that their line is an error."""

from __future__ import annotations

from ssl import SSLCertVerificationError

import pytest

from sam_pipeline.consumer.core.broker_loss import needs_action
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.stomp_session import SessionLost


@pytest.mark.parametrize(
    "text",
    [
        "User name [sam] or password is invalid.",  # ActiveMQ
        "Security Error occurred: User name [sam] or password is invalid",  # Artemis
        "Bad CONNECT: Access refused for user 'sam'",  # RabbitMQ
    ],
)
def test_a_refused_login_needs_action(text: str) -> None:
    assert needs_action(SessionLost(text, by_error=True))


@pytest.mark.parametrize(
    "cause", [ConfigError(["password_file: no such file"]), SSLCertVerificationError()]
)
def test_a_bad_certificate_or_configuration_needs_action(cause: Exception) -> None:
    loss = SessionLost("it failed")
    loss.__cause__ = cause

    assert needs_action(loss)


@pytest.mark.parametrize(
    "loss",
    [
        SessionLost("Connection refused"),
        SessionLost("Client: site-a already connected from tcp://10.0.0.1:5", by_error=True),
    ],
    ids=str,
)
def test_a_broker_that_may_come_back_needs_none(loss: SessionLost) -> None:
    assert not needs_action(loss)
