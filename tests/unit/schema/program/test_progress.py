"""The progress of long commands: a line on a terminal, nothing elsewhere."""

from __future__ import annotations

import io

from sam_pipeline.schema.program.progress import Progress

ERASED = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_on(
    stream: io.StringIO, seconds: list[float], name: str = "", total: int | None = None
) -> Progress:
    return Progress(name, total, "records", stream, clock=iter(seconds).__next__)


def test_percent_and_rate_of_a_command_that_takes_longer_than_two_seconds() -> None:
    terminal = Terminal()
    progress = progress_on(terminal, [0, 1, 3], "drained", 1000)

    progress.show(100)
    quick = terminal.getvalue()
    progress.show(500)
    progress.end()

    assert quick == ""
    bar = "[############............]  50%"
    drawn = f"\rdrained {bar}  500 of 1 000 records, 167 a second\x1b[K"
    assert terminal.getvalue() == drawn + ERASED


def test_the_share_of_a_file_is_shown_where_the_total_is_unknown() -> None:
    terminal = Terminal()
    progress = progress_on(terminal, [0, 2, 4])

    progress.name = "a.txt"
    progress.show(3000, share=0.5, skipped=1000)
    progress.name = "<stdin>"
    progress.show(5000, share=None)
    progress.end()

    file = "\ra.txt [############............]  50%  3 000 records, 1 000 a second\x1b[K"
    pipe = "\r<stdin>  5 000 records, 1 250 a second\x1b[K"
    assert terminal.getvalue() == file + pipe + ERASED


def test_a_text_is_drawn_at_once() -> None:
    terminal = Terminal()
    progress = progress_on(terminal, [0])

    progress.draw("12 rows of x")
    progress.end()
    progress.end()

    assert terminal.getvalue() == "\r12 rows of x\x1b[K" + ERASED


def test_a_stage_has_a_line_with_its_duration() -> None:
    terminal = Terminal()
    progress = progress_on(terminal, [0, 1, 2.5, 3, 5])

    progress.stage("reading")
    progress.stage("folding")
    progress.end()
    progress.end()

    assert terminal.getvalue() == "  reading … 1.5 s\n  folding … 2.0 s\n"


def test_a_stage_shows_which_share_of_it_is_done() -> None:
    terminal = Terminal()
    progress = progress_on(terminal, [0, 1, 3])

    progress.stage("folding")
    progress.share(0.5)
    progress.interrupt()
    progress.end()

    begun, bar = "  folding … ", "[############............]  50%\x1b[K"
    assert terminal.getvalue() == f"{begun}\r{begun}{bar}\n\r{begun}2.0 s\x1b[K\n"


def test_nothing_is_written_to_a_file() -> None:
    file = io.StringIO()
    progress = progress_on(file, [0, 3, 3, 4], "drained", 100)

    progress.show(50)
    progress.draw("12 rows of x")
    progress.stage("reading")
    progress.share(0.5)
    progress.interrupt()
    progress.end()

    assert file.getvalue() == ""
