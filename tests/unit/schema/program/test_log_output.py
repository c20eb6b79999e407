"""Repeated lines of a log are folded, and a log that cannot be written stops nothing."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sam_pipeline.schema.program.log_output import FoldingHandler, error_lines, set_up

SOON_S = 10.0


class Lines(io.StringIO):
    """A log to be read; `arrived` is set by each line."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Event()

    def flush(self) -> None:
        self.arrived.set()

    @property
    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


class Log:
    """Two loggers that share a handler with `every_s`."""

    def __init__(self, every_s: float) -> None:
        self.stream = Lines()
        self.handler = FoldingHandler(self.stream, every_s)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        self.one, self.other = logging.Logger("one"), logging.Logger("other")
        for logger in (self.one, self.other):
            logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.lines


@pytest.fixture
def log() -> Iterator[Log]:
    output = Log(every_s=3600)
    yield output
    output.handler.close()


def test_different_lines_are_all_written(log: Log) -> None:
    log.one.warning("broker %s away", "a")
    log.one.warning("broker %s away", "b")
    log.one.error("broker %s away", "b")
    log.other.error("broker %s away", "b")

    assert log.lines == [
        "WARNING one broker a away",
        "WARNING one broker b away",
        "ERROR one broker b away",
        "ERROR other broker b away",
    ]


def test_a_repeated_line_is_written_once_and_counted_before_the_next_one(log: Log) -> None:
    for _ in range(5):
        log.one.warning("broker away")
    log.one.info("broker back")

    assert log.lines == [
        "WARNING one broker away",
        "WARNING one last line repeated 4 times",
        "INFO one broker back",
    ]


def test_two_equal_lines_are_one_line_repeated_once(log: Log) -> None:
    log.one.warning("broker away")
    log.one.warning("broker away")
    log.one.warning("other")

    assert "WARNING one last line repeated once" in log.lines


def test_the_first_line_of_each_error_is_written_at_once(log: Log) -> None:
    for number in range(3):
        for _ in range(3):
            log.one.error("record %d", number)
        assert log.lines[-1] == f"ERROR one record {number}"


def test_errors_with_different_exceptions_are_different_lines(log: Log) -> None:
    for text in ("full", "gone"):
        try:
            raise OSError(text)
        except OSError:
            log.one.exception("not written")

    assert "OSError: full" in log.stream.getvalue()
    assert "OSError: gone" in log.stream.getvalue()


def test_the_number_of_repetitions_is_written_at_the_end(log: Log) -> None:
    log.one.warning("broker away")
    log.one.warning("broker away")

    log.handler.close()

    assert log.lines[-1] == "WARNING one last line repeated once"


def test_repetitions_are_counted_for_a_minute_and_then_the_line_is_written_again() -> None:
    log = Log(every_s=0.05)
    log.one.warning("broker away")
    log.stream.arrived.clear()
    log.one.warning("broker away")

    assert log.stream.arrived.wait(SOON_S)
    log.one.warning("broker away")

    assert log.lines == [
        "WARNING one broker away",
        "WARNING one last line repeated once",
        "WARNING one broker away",
    ]
    log.handler.close()


@pytest.mark.parametrize("how", ["full", "closed pipe", "closed", "none"])
def test_lines_of_a_log_that_cannot_be_written_are_counted(how: str) -> None:
    with unwritable(how) as stream:
        handler = FoldingHandler(stream)
        logger = logging.Logger("one")
        logger.addHandler(handler)

        logger.warning("first")
        logger.warning("second")

        assert handler.dropped == 2
        handler.close()


@contextmanager
def unwritable(how: str) -> Iterator[io.TextIOWrapper | None]:
    """A stream that cannot be written, for the given reason."""
    if how == "none":
        yield None
        return
    reader, writer = os.pipe()
    os.close(reader)
    descriptor = os.open("/dev/full", os.O_WRONLY) if how == "full" else os.dup(writer)
    os.close(writer)
    stream = io.TextIOWrapper(os.fdopen(descriptor, "wb", buffering=0), write_through=True)
    if how == "closed":
        stream.close()
        yield stream
    else:
        yield stream
        stream.detach().close()


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """The handlers of the root logger are as before at the end."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_text_from_outside_forges_no_line(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(0, log_format)

    try:
        raise ValueError("one\n2026-11-22T00:00:00Z ERROR forged \x1b[2J\u202e")
    except ValueError as error:
        logging.getLogger("x").exception("broker %s", error)

    first, *others = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert r"one\n2026" in first.replace(r"\\", "\\")
    assert all(line.startswith("  ") for line in others)
    assert bool(others) == (log_format == "text")  # the traceback
    assert all(line.isprintable() for line in (first, *others))


class Journal:
    """A file that is standard error inside `with`, and that systemd named as its journal."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = path.open("w+")
        self._monkeypatch = monkeypatch

    def __enter__(self) -> None:
        status = os.fstat(self._file.fileno())
        self._monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        self._monkeypatch.setattr("sys.stderr", self._file)

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()
        self._file.seek(0)
        self.lines = self._file.read().splitlines()
        self._file.close()


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_handlers: None) -> Journal:
    return Journal(tmp_path / "journal", monkeypatch)


def test_each_line_of_the_journal_has_its_priority_and_no_time(journal: Journal) -> None:
    with journal:
        set_up(1, "text")
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger("a.b").log(level, "line")

    assert journal.lines == [
        "<7>DEBUG a.b: line",
        "<6>INFO a.b: line",
        "<4>WARNING a.b: line",
        "<3>ERROR a.b: line",
    ]


def test_each_line_of_a_traceback_in_the_journal_has_its_priority(journal: Journal) -> None:
    with journal:
        set_up(0, "text")
        try:
            raise OSError("full")
        except OSError:
            logging.getLogger("a.b").exception("not written")

    assert len(journal.lines) > 3
    assert {line[:3] for line in journal.lines} == {"<3>"}


def test_json_in_the_journal_has_priority_and_time(journal: Journal) -> None:
    with journal:
        set_up(0, "json")
        logging.getLogger("a.b").warning("line")

    [line] = journal.lines
    assert line.startswith("<4>{")
    assert json.loads(line[3:])["time"]


@pytest.mark.usefixtures("own_handlers")
def test_the_variable_of_another_stream_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may have redirected standard error; its children inherit the variable."""
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    with (tmp_path / "log").open("w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        set_up(0, "text")
        logging.getLogger("a.b").warning("line")

    assert (tmp_path / "log").read_text().endswith("Z WARNING a.b: line\n")


@pytest.mark.usefixtures("own_handlers")
def test_json_has_broker_message_and_class_where_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"broker": "stomp://b:1", "message_id": "id-1", "message_class": "metricOutput"}
    with (tmp_path / "log").open("w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        set_up(0, "json")
        logging.getLogger("a").warning("one", extra=fields)
        logging.getLogger("a").warning("two", extra={"broker": "", "other": 1})

    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert fields.items() <= first.items()
    assert second.keys() == {"time", "level", "logger", "message"}


def test_errors_that_end_a_program_are_lines_of_its_log(journal: Journal) -> None:
    texts = ["[database] url is missing", "line\nend"]

    with journal:
        [plain, escaped] = error_lines("sam-db", texts, "text")
        [document, _] = error_lines("sam-db", texts, "json")

    assert plain == "<3>sam-db: error: [database] url is missing"
    assert "\n" not in escaped
    fields = json.loads(document.removeprefix("<3>"))
    assert (fields["level"], fields["logger"], fields["message"]) == ("ERROR", "sam-db", texts[0])
