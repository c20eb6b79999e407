"""The line number of each path in a TOML text."""

from __future__ import annotations

import tomllib
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from sam_pipeline.schema.settings.toml_lines import lines_of

STRINGS = ['""', "''", '"\\""', "'\\'", '"""a""""', "'''b'''''", '"""\n[t]\nx = 1\\""" """']
SCALARS = [*STRINGS, "1", "-1.5e3", "true", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00"]
scalars = st.sampled_from(SCALARS)
arrays = st.lists(scalars).map(lambda items: "[ # ]\n" + ",\n".join(items) + "\n]")
tables = st.lists(st.sampled_from(["1", "''", "[2, 3]", "{}"])).map(
    lambda values: "{" + ", ".join(f"k{at} = {value}" for at, value in enumerate(values)) + "}"
)
noise = st.sampled_from(["", "\n", "# [table]\n# key = 1\n", "\t\n  # '''\n"])
keys = st.sampled_from(["key{}", '"key {}"', "'key=[{}]'", "key{}.inner", '"" . key{}', "{}"])
pairs = st.tuples(noise, keys, st.one_of(scalars, arrays, tables))
headers = st.sampled_from(["", "[table{}]", "[ 'table {}' . more ]", "[[array]]", "[[array]] # {}"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(headers, st.lists(pairs, max_size=5)), max_size=6))
def test_any_text_gives_each_key_its_line(
    blocks: list[tuple[str, list[tuple[str, str, str]]]],
) -> None:
    numbers, text, expected = count(), "", set()
    for header, block in blocks:
        if header:
            text += header.format(next(numbers)) + "\n"
        for before, key, value in block:
            text += before
            number = next(numbers)
            expected.add((number, text.count("\n") + 1))
            text += f"{key.format(number)} = {value} # comment\n"
        if not header:
            text += f"[end{next(numbers)}]\n"  # dotted keys of two blocks don't meet

    tomllib.loads(text)
    actual = {
        (int("".join(filter(str.isdigit, part))), line)
        for path, line in lines_of(text).items()
        for part in path[-1:]
        if isinstance(part, str)
        if "key" in part or part.isdigit()
    }

    assert expected <= actual
