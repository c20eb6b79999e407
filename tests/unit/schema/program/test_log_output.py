"""Folded lines of a log, a log that cannot be written, and files that are replaced as a whole."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sam_pipeline.schema.program.log_output import FoldingHandler, error_lines, set_up
from sam_pipeline.schema.program.replacing import replacing


def test_a_repeated_line_is_written_once_and_counted_before_the_next_one() -> None:
    stream = io.StringIO()
    handler = FoldingHandler(stream, 3600)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    one, other = logging.Logger("one"), logging.Logger("other")
    for logger in (one, other):
        logger.addHandler(handler)

    for _ in range(5):
        one.warning("broker %s away", "a")
    other.warning("broker a away")
    other.error("broker a away")
    other.error("broker a away")
    handler.close()

    assert stream.getvalue().splitlines() == [
        "WARNING one broker a away",
        "WARNING one last line repeated 4 times",
        "WARNING other broker a away",
        "ERROR other broker a away",
        "ERROR other last line repeated once",
    ]


class Stderr:
    """A file that is standard error inside `with`; systemd named it as its journal or did not."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def __call__(self, log_format: str, verbosity: int = 0, journal: bool = True) -> Iterator[None]:
        root = logging.getLogger()
        with self._path.open("w") as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(root, "handlers", [])
            patch.setattr(root, "level", root.level)
            status = os.fstat(file.fileno())
            stream = f"{status.st_dev}:{status.st_ino}" if journal else "1:2"
            patch.setenv("JOURNAL_STREAM", stream)
            patch.setattr("sys.stderr", file)
            set_up(verbosity, log_format)
            yield
        root.setLevel(root.level)  # forget which loggers are enabled

    @property
    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()


@pytest.fixture
def stderr(tmp_path: Path) -> Stderr:
    return Stderr(tmp_path / "stderr")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_text_from_outside_cannot_forge_a_line(stderr: Stderr, log_format: str) -> None:
    error = ValueError("one\n2026-11-22T00:00:00Z ERROR forged \x1b[2J\u202e")
    with stderr(log_format, journal=False):
        logging.getLogger("x").error("broker %s", error, exc_info=error)

    first, *others = stderr.lines
    assert r"one\n2026" in first.replace(r"\\", "\\")
    assert all(line.startswith("  ") for line in others)
    assert bool(others) == (log_format == "text")  # the traceback
    assert all(line.isprintable() for line in (first, *others))


def test_each_line_of_the_journal_has_its_priority_and_no_time(stderr: Stderr) -> None:
    with stderr("text", verbosity=1):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger("a.b").log(level, "line")
        logging.getLogger("a.b").error("not written", exc_info=OSError("full\nstop"))

    assert stderr.lines[:4] == [
        "<7>DEBUG a.b: line",
        "<6>INFO a.b: line",
        "<4>WARNING a.b: line",
        "<3>ERROR a.b: line",
    ]
    assert len(stderr.lines) > 5
    assert {line[:3] for line in stderr.lines[4:]} == {"<3>"}  # also in a traceback
    # A service may have redirected standard error; its children inherit the variable.
    with stderr("text", journal=False):
        logging.getLogger("a.b").warning("line")
    assert stderr.lines[0].endswith("Z WARNING a.b: line")


def test_json_has_broker_message_and_class_where_they_are_given(stderr: Stderr) -> None:
    fields = {"broker": "stomp://b:1", "message_id": "id-1", "message_class": "metricOutput"}
    texts = ["[database] url is missing", "line\nend"]
    with stderr("json"):
        logging.getLogger("a").warning("one", extra=fields)
        logging.getLogger("a").warning("two", extra={"broker": "", "other": 1})
        # Errors that end a program are lines of its log.
        [plain, escaped] = error_lines("sam-db", texts, "text")
        [document, _] = error_lines("sam-db", texts, "json")

    assert [line[:4] for line in stderr.lines] == ["<4>{"] * 2
    first, second = (json.loads(line[3:]) for line in stderr.lines)
    assert fields.items() <= first.items()
    assert second.keys() == {"time", "level", "logger", "message"}
    assert plain == "<3>sam-db: error: [database] url is missing"
    assert "\n" not in escaped
    error = {"level": "ERROR", "logger": "sam-db", "message": texts[0]}
    assert error.items() <= json.loads(document.removeprefix("<3>")).items()


def test_a_failure_leaves_only_the_old_file_and_a_planted_link_is_not_followed(
    tmp_path: Path,
) -> None:
    path, victim = tmp_path / "file", tmp_path / "victim"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

    victim.write_bytes(b"theirs")
    (tmp_path / f".file.{os.getpid()}.new").symlink_to(victim)
    with replacing(path) as file:
        file.write(b"ours")
    assert (path.read_bytes(), victim.read_bytes()) == (b"ours", b"theirs")
    assert not path.is_symlink()
