"""`sam-db import gocdb` on an SQLite file: its arguments, output and errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import BAD_DATA, NO_INPUT, OK
from sam_pipeline.sql.cli import main
from tests.support.database.gocdb_files import document, service_endpoint, write
from tests.support.database.sam_db import Output, answer, refusal


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", f"sqlite:///{tmp_path}/sam.db")
    shutil.copy(empty_database, tmp_path)


def test_the_result_has_counts_by_kind(capsys: Output, tmp_path: Path) -> None:
    file = write(tmp_path / "x.xml", document(service_endpoint()))

    result = answer(
        capsys, "import", "gocdb", "--endpoints", str(file), "--at", "2026-01-01T00:00Z"
    )

    counts = {"read": 1, "new": 1, "changed": 0, "ended": 0, "unchanged": 0, "kept": 0}
    assert result == {
        "at": "2026-01-01T00:00:00Z",
        "dry_run": False,
        "kinds": [{"kind": "serviceEndpoint", **counts}],
    }


def test_a_dry_run_shows_the_rows(capsys: Output, tmp_path: Path) -> None:
    file = write(tmp_path / "x.xml", document(service_endpoint()))
    command = ("import", "gocdb", "--endpoints", str(file), "--dry-run")

    [row] = answer(capsys, *command, "--at", "2026-01-01T00:00Z")["rows"]
    assert main(command) == OK

    assert row["class"] == "serviceEndpoint"
    assert row["record"]["validFrom"] == "2026-01-01T00:00:00Z"
    out = capsys.readouterr().out
    assert "nothing was written; these rows would be:\n\nserviceEndpoint\nsiteName " in out


def test_a_missing_file_and_a_bad_one_change_nothing(capsys: Output, tmp_path: Path) -> None:
    file = write(tmp_path / "x.xml", "<results>")

    assert main(["import", "gocdb", "--endpoints", str(tmp_path / "no.xml")]) == NO_INPUT
    assert main(["import", "gocdb", "--endpoints", str(file)]) == BAD_DATA

    missing, bad = capsys.readouterr().err.splitlines()
    assert missing.endswith("no.xml: no such file or directory; nothing was changed")
    assert "x.xml, line 1: the file ends here" in bad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--url or files are required"),
        (("--url", "https://x", "--endpoints", "x"), "--url or files are required"),
        (("--url", "https://x", "--at", "2026-01-01T00:00Z"), "--at is for files"),
        (
            ("--endpoints", "x", "--window", "2026-01-01..2026-01-02"),
            "--window needs --downtimes or --url",
        ),
        (("--endpoints", "x", "--at", "2999-01-01T00:00Z"), "is in the future"),
        (("--endpoints", "x", "--since", "2999-01-01T00:00Z"), "is after the snapshot"),
        (("--downtimes", "x", "--window", "November"), "is not a window"),
    ],
)
def test_bad_options_are_refused(capsys: Output, options: tuple[str, ...], message: str) -> None:
    assert message in refusal(capsys, "import", "gocdb", *options)
