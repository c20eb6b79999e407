"""The progress of long commands: a line on a terminal, nothing elsewhere."""

from __future__ import annotations

import io

from sam_pipeline.schema.program.progress import Progress

HALF = "[############............]  50%"
ERASE = "\x1b[K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_on(
    stream: io.StringIO, seconds: list[float], name: str = "", total: int | None = None
) -> Progress:
    return Progress(name, total, "records", stream, clock=iter(seconds).__next__)


def test_share_and_rate_of_a_command_that_takes_longer_than_two_seconds() -> None:
    drained, file = Terminal(), Terminal()
    of_total = progress_on(drained, [0, 1, 3], "drained", 1000)
    of_file = progress_on(file, [0, 2, 4], "a.txt")

    of_total.show(100)  # too soon
    of_total.show(500)
    of_file.show(3000, share=0.5, skipped=1000)
    of_file.show(5000, share=None)
    of_total.end()
    of_file.end()

    line = f"\rdrained {HALF}  500 of 1 000 records, 167 a second{ERASE}"
    assert drained.getvalue() == f"{line}\r{ERASE}"
    assert file.getvalue() == (
        f"\ra.txt {HALF}  3 000 records, 1 000 a second{ERASE}"
        f"\ra.txt  5 000 records, 1 250 a second{ERASE}\r{ERASE}"
    )


def test_a_stage_has_its_share_and_duration_on_a_terminal_alone() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = progress_on(stream, [0, 1, 2.5, 3, 5])
        progress.stage("reading")
        progress.stage("folding")
        progress.share(0.5)
        progress.interrupt()
        progress.end()

    begun = "  folding … "
    assert terminal.getvalue() == (
        f"  reading … 1.5 s\n{begun}\r{begun}{HALF}{ERASE}\n\r{begun}2.0 s{ERASE}\n"
    )
    assert file.getvalue() == ""
