"""Writes the files of this folder again."""

from tests.acceptance.help import PROGRAMS, file_of, text_of

for program in PROGRAMS:
    file_of(program).write_text(text_of(program))
