"""What `sam-consume check` says of the files and the settings of a door."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sam_pipeline.consumer.commands.door_check import door_notes, door_problems
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.door_config import DoorConfig
from sam_pipeline.schema.identity.tokens import make_token
from tests.support.brokers.tls_files import HOST, TlsFiles

SECURE = f"listen+https://{HOST}:8443"
OPEN = "listen+http://0.0.0.0:8080"
POLICY = """\
mode = "enforce"
[[publisher]]
name = "a"
is = ["token:listed", "token:missing", "token:any-*"]
classes = ["metricOutput"]
"""


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def config_of(files: TlsFiles, url: str = SECURE, policy: str = "", **door: bool) -> ConsumerConfig:
    """A door with a certificate and a token."""
    host, tokens = files.host(), files.directory / "tokens"
    make_token(tokens, "listed")
    publishers = files.file("publishers.toml", policy.encode()) if policy else None
    keys = DoorConfig(
        files.certificate_file(host, "host.pem"),
        files.key_file(host, name="host-key.pem"),
        tokens_file=tokens,
        **{"require_identity": True, **door},
    )
    return ConsumerConfig((url,), door=keys, publishers=publishers)


def about(lines: Sequence[str], *texts: str) -> list[str]:
    return [line for line in lines if all(text in line for text in texts)]


def test_all_bad_files_are_problems_at_once(files: TlsFiles) -> None:
    config = config_of(files)
    assert [*door_problems(config), *door_notes(config)] == []
    (files.directory / "tokens").chmod(0o644)
    files.certificate_file(files.expired_host(), "host.pem")
    problems = [*door_problems(config)]

    assert len(problems) == 3
    assert about(problems, "/tokens: ", "chmod")
    assert about(problems, "host.pem", "key")
    assert about(problems, "host.pem", "expired")


def test_who_may_send_without_identity_is_a_note(files: TlsFiles) -> None:
    notes = [*door_notes(config_of(files, OPEN, require_identity=False, insecure=True))]

    assert len(notes) == 2
    assert about(notes, OPEN, "anybody")
    assert about(notes, OPEN, "plain text")
    local = [*door_notes(config_of(files, "listen+http://localhost:8080", require_identity=False))]
    assert len(local) == 1
    assert about(local, "every account of this host")


def test_a_certificate_for_another_host_is_a_note(files: TlsFiles) -> None:
    config = config_of(files)
    files.certificate_file(files.host("door.example.org"), "host.pem")

    (note,) = door_notes(config)
    assert about([note], SECURE, "door.example.org", HOST)


def test_tokens_and_policy_that_differ_are_notes(files: TlsFiles) -> None:
    config = config_of(files, policy=POLICY)
    make_token(files.directory / "tokens", "any-1")
    make_token(files.directory / "tokens", "unlisted")
    notes = [*door_notes(config)]

    assert len(notes) == 2
    assert about(notes, "publishers.toml", "token:missing")
    assert about(notes, "/tokens: ", "token:unlisted")
