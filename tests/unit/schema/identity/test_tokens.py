"""Tokens: what their file contains, and who a token belongs to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
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


def test_comments_and_blank_lines_are_kept_and_ignored(path: Path) -> None:
    path.write_text(f"# of site A\n\n  \n{line('nagios-a', 'one')}# the end, without a line feed")
    token = make_token(path, "nagios-b")

    tokens = load_tokens(path)
    assert tokens.names == {"nagios-a", "nagios-b"}
    assert tokens.name_of(token) == "nagios-b"
    assert path.read_text().startswith("# of site A\n")


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
