"""What `sam-consume check` says of the files and the settings of a door."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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


class Place(NamedTuple):
    files: TlsFiles

    @property
    def tokens(self) -> Path:
        return self.files.directory / "tokens"

    def config(self, url: str = SECURE, policy: str = "", **door: bool) -> ConsumerConfig:
        """A door with a certificate and a token."""
        host = self.files.host()
        make_token(self.tokens, "listed")
        publishers = self.files.file("publishers.toml", policy.encode()) if policy else None
        keys = DoorConfig(
            self.files.certificate_file(host, "host.pem"),
            self.files.key_file(host, name="host-key.pem"),
            tokens_file=self.tokens,
            **{"require_identity": True, **door},
        )
        return ConsumerConfig((url,), door=keys, publishers=publishers)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(TlsFiles(tmp_path))


def about(lines: Sequence[str], *texts: str) -> list[str]:
    return [line for line in lines if all(text in line for text in texts)]


def test_a_door_in_order_is_not_mentioned(place: Place) -> None:
    config = place.config()

    assert [*door_problems(config), *door_notes(config)] == []


def test_all_bad_files_are_problems_at_once(place: Place) -> None:
    config = place.config()
    place.tokens.chmod(0o644)
    place.files.certificate_file(place.files.expired_host(), "host.pem")
    problems = [*door_problems(config)]

    assert len(problems) == 3
    assert about(problems, str(place.tokens), "chmod")
    assert about(problems, "host.pem", "key")
    assert about(problems, "host.pem", "expired")


def test_who_may_send_without_identity_is_a_note(place: Place) -> None:
    notes = [*door_notes(place.config(OPEN, require_identity=False, insecure=True))]

    assert len(notes) == 2
    assert about(notes, OPEN, "anybody")
    assert about(notes, OPEN, "plain text")
    local = [*door_notes(place.config("listen+http://localhost:8080", require_identity=False))]
    assert len(local) == 1
    assert about(local, "every account of this host")


def test_a_certificate_for_another_host_is_a_note(place: Place) -> None:
    config = place.config()
    place.files.certificate_file(place.files.host("door.example.org"), "host.pem")

    (note,) = door_notes(config)
    assert about([note], SECURE, "door.example.org", HOST)


def test_tokens_and_policy_that_differ_are_notes(place: Place) -> None:
    config = place.config(policy=POLICY)
    make_token(place.tokens, "any-1")
    make_token(place.tokens, "unlisted")
    notes = [*door_notes(config)]

    assert len(notes) == 2
    assert about(notes, "publishers.toml", "token:missing")
    assert about(notes, str(place.tokens), "token:unlisted")
