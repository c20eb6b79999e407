"""The key `to` of `[consumer]`, and the problems of a relay's targets."""

from __future__ import annotations

import pytest

from sam_pipeline.consumer.settings.relay_targets import check_targets


@pytest.mark.parametrize(
    "urls",
    [
        ("spool:///var/spool/sam-in?umask=007",),
        ("stomp://bridge@msg1.example.org", "stomp+ssl://msg2.example.org"),
    ],
)
def test_a_relay_sends_to_one_spool_or_to_brokers(urls: tuple[str, ...]) -> None:
    assert check_targets(urls) is None


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        (("spool:///a", "spool:///b"), "one spool"),
        (("spool:///a", "stomp://msg1.example.org"), "one spool"),
        (("stomp://msg1.example.org", "stomp://user@msg1.example.org:61613"), "appears twice"),
        (("ams+https://ams.example.org/v1/projects/p",), "stomp://HOST"),
        (("listen+https://0.0.0.0:8443",), "stomp://HOST"),
        (("msg1.example.org",), "msg1.example.org"),
    ],
)
def test_other_targets_are_refused(urls: tuple[str, ...], problem: str) -> None:
    assert problem in str(check_targets(urls))


def test_all_problems_are_reported_at_once() -> None:
    assert len(str(check_targets(("ams+https://a/v1/projects/p", "nonsense"))).splitlines()) == 2
