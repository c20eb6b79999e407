"""The line number of each path in a TOML text."""

from __future__ import annotations

import tomllib
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from sam_pipeline.schema.settings.toml_lines import lines_of

TEXT = '''\
# name = 0
name = "a # no comment = 1"
"quoted key" = 1.5e3 # [not.a.table]
a.b."c.d" = 1979-05-27 07:32:00
list = [
  1, # one = 1
  [2,
   3],
  """
[no.table]
no_key = 1""""",
  { x = 4, y.z = [5] }, 6
]
empty = []
text = \'\'\'
[[rules]]
name = 2\'\'\'

[plain]
name = 1
[ "x.y" . z ]
name = 1

[[rules]]
name = 1
[rules.more]
deep = 1
[[rules]]
name = 1
  [[rules.inner]]
  name = 1
  [[rules.inner]]
  name = 1
[last]
name = \'c:\\\'
'''


LINES = """
2 name|3 quoted key|4 a|4 a/b|4 a/b/c.d|5 list|6 list/1|7 list/2|7 list/2/1|8 list/2/2|9 list/3
12 list/4|12 list/4/x|12 list/4/y|12 list/4/y/z|12 list/4/y/z/1|12 list/5|14 empty|15 text
19 plain|20 plain/name|21 x.y|21 x.y/z|22 x.y/z/name|24 rules|24 rules/1|25 rules/1/name
26 rules/1/more|27 rules/1/more/deep|28 rules/2|29 rules/2/name|30 rules/2/inner|30 rules/2/inner/1
31 rules/2/inner/1/name|32 rules/2/inner/2|33 rules/2/inner/2/name|34 last|35 last/name
"""


def test_each_path_has_its_line() -> None:
    tomllib.loads(TEXT)

    found = [f"{line} {'/'.join(map(str, path))}" for path, line in lines_of(TEXT).items()]

    assert sorted(found) == sorted(LINES.replace("\n", "|").strip("|").split("|"))


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
