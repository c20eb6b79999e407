"""When a drain ends, and which losses of a broker need somebody to act."""

from __future__ import annotations

from collections.abc import Sequence
from ssl import SSLCertVerificationError

import pytest

from sam_pipeline.consumer.core.broker_loss import needs_action
from sam_pipeline.consumer.core.drain import Drain
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.stomp_session import SessionLost
from tests.support.consumer.doubles import FakeSource

NEWS, AWAY, MISSING = "news", "away", "b (connection refused)"

Step = tuple[float, str, bool]
"""The time, whether there are news or the second source is away, and whether the drain goes on."""


@pytest.mark.parametrize(
    ("steps", "unreached"),
    [
        ([(0, "", True), (1, NEWS, True), (2.9, "", True), (3, "", False)], []),
        ([(0, AWAY, True), (59, AWAY, True)], []),
        ([(30, AWAY, True), (31, "", True), (32.9, "", True), (33, "", False)], []),
        ([(59, AWAY + NEWS, True), (61.1, AWAY, False)], [MISSING]),
        ([(100, AWAY + NEWS, True), (101, AWAY, True), (102, AWAY, False)], [MISSING]),
        ([(50, NEWS, True), (51, AWAY, True), (110.9, AWAY, True), (111, AWAY, False)], [MISSING]),
    ],
    ids=[
        "two seconds without news",
        "a source that is not connected yet",
        "the quiet time begins when the last source connects",
        "it gives up on a source after a minute, and names it",
        "the others are loaded before it gives up",
        "a source that is lost again gets another minute",
    ],
)  # fmt: skip
def test_the_end_of_a_drain(steps: Sequence[Step], unreached: list[str]) -> None:
    first, second = FakeSource("a"), FakeSource("b", MISSING)
    now = [0.0]
    drain = Drain([first, second], 60, lambda: now[0])

    for now[0], what, goes_on in steps:
        second.problems = [MISSING] if AWAY in what else []
        assert drain.should_continue(NEWS in what) is goes_on, now

    assert drain.unreached == unreached


def lost(text: str, cause: Exception | None = None) -> SessionLost:
    loss = SessionLost(text, by_error=cause is None)
    loss.__cause__ = cause
    return loss


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lost("User name [sam] or password is invalid."), True),
        (lost("Security Error occurred: User name [sam] or password is invalid"), True),
        (lost("Bad CONNECT: Access refused for user 'sam'"), True),
        (lost("it failed", ConfigError(["password_file: no such file"])), True),
        (lost("it failed", SSLCertVerificationError()), True),
        (SessionLost("Connection refused"), False),
        (lost("Client: site-a already connected from tcp://10.0.0.1:5"), False),
    ],
    ids=["ActiveMQ", "Artemis", "RabbitMQ", "configuration", "certificate", "away", "two clients"],
)  # fmt: skip
def test_a_refused_login_and_a_bad_certificate_need_somebody_to_act(
    loss: SessionLost, expected: bool
) -> None:
    assert needs_action(loss) is expected
