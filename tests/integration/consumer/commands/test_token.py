"""`sam-consume token`: makes and lists tokens of senders over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.tokens import load_tokens
from sam_pipeline.schema.program.command import CONFIG, OK, USAGE


@pytest.fixture
def sam_toml(tmp_path: Path) -> Path:
    path = tmp_path / "sam.toml"
    path.write_text(
        '[consumer]\nbrokers = ["listen+http://127.0.0.1:8080"]\n'
        '[consumer.door]\ntokens_file = "tokens"\n'
    )
    return path


def token(sam_toml: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sam_pipeline.consumer", "--config", str(sam_toml), "token"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)


def test_a_token_is_printed_once_and_works_from_the_configured_file(sam_toml: Path) -> None:
    made, again = token(sam_toml, "make", "a"), token(sam_toml, "make", "b", "--json")
    second = json.loads(again.stdout)
    listed = json.loads(token(sam_toml, "list", "--json").stdout)

    tokens = load_tokens(sam_toml.with_name("tokens"))
    assert (made.returncode, again.returncode) == (OK, OK)
    assert tokens.name_of(made.stdout.removesuffix("\n")) == "a"
    assert tokens.name_of(second["token"]) == second["name"] == "b"
    assert second["identity"] == "token:b"
    assert [(row["name"], row["line"]) for row in listed] == [("a", 1), ("b", 2)]
    assert made.stdout.strip() not in made.stderr


def test_another_file_may_be_named(sam_toml: Path, tmp_path: Path) -> None:
    other = tmp_path / "others"

    assert token(sam_toml, "make", "a", "--file", str(other)).returncode == OK
    assert load_tokens(other).names == {"a"}
    assert not sam_toml.with_name("tokens").exists()


def test_a_wrong_name_and_a_missing_file_are_usage_errors(sam_toml: Path) -> None:
    assert token(sam_toml, "make", "a b").returncode == USAGE
    sam_toml.write_text('[consumer]\nbrokers = ["listen+http://127.0.0.1:8080"]\n')
    assert token(sam_toml, "make", "a").returncode == USAGE


def test_a_file_that_others_can_read_gets_no_token(sam_toml: Path) -> None:
    token(sam_toml, "make", "a")
    file = sam_toml.with_name("tokens")
    file.chmod(0o644)
    before = file.read_text()

    refused = token(sam_toml, "make", "b")

    assert (refused.returncode, refused.stdout, file.read_text()) == (CONFIG, "", before)
