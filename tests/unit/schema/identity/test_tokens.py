"""Tokens: what their file contains, whose a token is; and the rates of publishers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity import policy as module
from sam_pipeline.schema.identity.policy import PublisherRule, RateLimits
from sam_pipeline.schema.identity.tokens import Tokens, load_tokens, make_token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.touch(0o600)
    return path


def line(name: str, token: str) -> str:
    return f"{name} {sha256(token.encode()).hexdigest()}\n"


def test_a_new_token_is_known_by_its_name_and_is_not_in_the_file(path: Path) -> None:
    path.unlink()
    first, second, again = (make_token(path, f"nagios-{name}") for name in "aba")

    tokens = load_tokens(path)
    assert tokens.name_of(first) == tokens.name_of(again) == "nagios-a"  # while it changes them
    assert tokens.name_of(second) == "nagios-b"
    assert not [token for token in (first, second, again) if token in path.read_text()]
    assert path.stat().st_mode & 0o777 == 0o600
    for other in ("", first[:-1], f"{first} ", first.upper(), "n\udcffagios", first * 1000):
        assert tokens.name_of(other) is None
    assert Tokens().name_of(first) is None


def test_tokens_whose_digests_begin_alike_are_not_confused(path: Path) -> None:
    start = sha256(b"mine").hexdigest()[:8]
    path.write_text(f"other {start}{'0' * 56}\n{line('me', 'mine')}last {start}{'f' * 56}\n")
    assert load_tokens(path).name_of("mine") == "me"


def test_all_problems_of_the_file_are_reported_with_their_lines(path: Path) -> None:
    good = line("good", "secret")
    text = f"{good}name-only\n-x {'0' * 64}\nshort {'0' * 63}\nmany {'1' * 64} more\n{good}"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_tokens(path)
    places = [problem.split(": ")[0] for problem in caught.value.problems]
    assert places == [f"{path}:{number}" for number in (2, 3, 4, 5, 6)]
    with pytest.raises(ConfigError):
        make_token(path, "nagios-a")
    assert path.read_text() == text


def test_a_file_that_other_users_can_read_is_refused(path: Path) -> None:
    path.write_text(line("nagios-a", "secret"))
    for mode in (0o644, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(ConfigError):
            load_tokens(path)
        with pytest.raises(ConfigError):
            make_token(path, "nagios-b")


def test_two_commands_at_once_lose_no_token(path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = dict(pool.map(lambda n: (make_token(path, f"n{n}"), f"n{n}"), range(20)))
    tokens = load_tokens(path)
    assert {token: tokens.name_of(token) for token in made} == made


def publisher(records_per_minute: int | None, name: str = "a") -> PublisherRule:
    return PublisherRule(
        name=name,
        identities=("uid:1",),
        classes=("metricOutput",),
        records_per_minute=records_per_minute,
    )


@pytest.mark.parametrize(
    ("per_minute", "spent", "pauses"),
    [
        (100, [(100, 0.0)], [0]),  # the records of a minute may come at once
        (100, [(150, 0.0), (50, 30.0), (150, 120.0)], [30, 30, 30]),
        (10, [(1_000_000, 0.0)], [60]),  # a minute at most
        (None, [(1_000_000, 0.0)], [0]),
    ],
)
def test_records_above_the_rate_are_followed_by_a_pause(
    per_minute: int | None, spent: list[tuple[int, float]], pauses: list[float]
) -> None:
    rates = RateLimits()
    waits = [rates.spend(publisher(per_minute), records, now) for records, now in spent]
    assert waits == pytest.approx(pauses)
    assert rates.spend(publisher(10, "b"), 5, 0.0) == 0  # others do not wait


def test_a_client_may_use_its_minute_at_once_and_then_waits_for_each_request() -> None:
    rates = RateLimits()

    assert [rates.admit("a", 60, 0.0) for _ in range(60)] == [0] * 60
    assert rates.admit("a", 60, 0.0) == pytest.approx(1)
    assert rates.admit("b", 60, 0.0) == 0
    assert rates.admit("a", 60, 1.0) == 0
    assert rates.admit("a", 60, 1.0) > 0
    assert not any(rates.admit("c", 0, 0.0) for _ in range(1000))  # no limit


def test_a_client_gets_its_rate_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = RateLimits()
    admitted = sum(not rates.admit("a", 60, at / 10) for at in range(6000))
    assert 60 + 599 <= admitted <= 60 + 600

    monkeypatch.setattr(module, "MAX_BUCKETS", 3)
    for name in ("b", "c"):
        rates.admit(name, 60, 600.0)
    rates.admit("d", 60, 700.0)
    assert rates._buckets.keys() == {"d"}
