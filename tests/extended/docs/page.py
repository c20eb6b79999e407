"""The code blocks of a page of docs/, and the plan by which a test runs them.

A plan (plans/NAME.sh) is a bash script that does what a reader does between the blocks. Its lines
that begin with `#:` are directives:

    #: place sqlite|postgresql|bare     the directory: with a database and a spool, or empty
    #: needs activemq rabbitmq root     servers and programs, see test_pages.py
    #: replace OLD => NEW               in all blocks that follow; {activemq} is its address
    #: run sh 1 2                       the blocks, typed here
    #: write toml 1 sam.toml            a block as a file
    #: valid sam-consume toml 2 3       configurations that the program accepts
    #: shows text 1                     the output has each line of the block
    #: skip sh 7: the reason            a block that is not run
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLANS = Path(__file__).parent / "plans"
SHOWN = ("", "text", "results", "outcome")
"""Languages of output, drawings and formats: nobody types them."""
PRELUDE = r"""set -euo pipefail
OUT=$PWD/out.log
shows() { grep -qF -- "$1" "$OUT" || { echo "not shown: $1" >&2; exit 99; }; }
eventually() { for _ in $(seq 600); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
    echo "in vain: $*" >&2; exit 98; }
exits() { local expected=$1 code=0; shift; "$@" || code=$?
    [ $code = $expected ] || { echo "$* exited with $code" >&2; exit 97; }; }
start() { "$@" >> running.log 2>&1 & STARTED=$!; }
same() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 96; }; }
secrets() { for name; do echo secret > "$name"; chmod 600 "$name"; done; }
trap 'kill -9 $(jobs -p) 2> /dev/null || true' EXIT
"""

Key = tuple[str, int]
"""The language of a block, and its number among those of the page."""


def pages() -> list[str]:
    """The names of all pages with blocks that a reader types."""
    names = [path.stem for path in sorted((ROOT / "docs").glob("*.md"))]
    return [name for name in names if any(key[0] not in SHOWN for key in blocks(name))]


def blocks(name: str) -> dict[Key, str]:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    found, numbers = dict[Key, str](), Counter[str]()
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        numbers[language] += 1
        found[language, numbers[language]] = block
    return found


class Plan:
    """`values` stand for the names in braces of the directives."""

    def __init__(self, name: str) -> None:
        self.lines = (PLANS / f"{name}.sh").read_text(encoding="utf-8").splitlines()
        self._blocks = blocks(name)
        self._open = {key for key in self._blocks if key[0] not in SHOWN}
        self._replaced: list[tuple[str, str]] = []
        self.place = next((words[0] for kind, words in self.directives() if kind == "place"), "")
        self.needs = [
            word for kind, words in self.directives() if kind == "needs" for word in words
        ]
        self.shown: list[str] = []

    def directives(self) -> Iterator[tuple[str, list[str]]]:
        for line in self.lines:
            if line.startswith("#: "):
                kind, *words = line[3:].split()
                yield kind, words

    def script(self, values: Mapping[str, str]) -> str:
        """The bash script; an AssertionError names the blocks that it neither runs nor excuses."""
        lines = [PRELUDE]
        for line in self.lines:
            for name, value in values.items():
                line = line.replace(f"{{{name}}}", value)
            lines += self._directive(line[3:]) if line.startswith("#: ") else [line]
        assert not self._open, f"neither run nor skipped: {sorted(self._open)}"
        return "\n".join(lines)

    def _directive(self, line: str) -> Iterator[str]:
        kind, _, rest = line.partition(" ")
        if kind == "replace":
            old, new = rest.split(" => ")
            self._replaced.append((old, new))
        elif kind == "skip":
            names, reason = rest.split(": ", 1)
            assert reason
            self._keys(names.split())
        elif kind == "run":
            yield from map(self._text, self._keys(rest.split()))
        elif kind == "write":
            language, number, file = rest.split()
            [key] = self._keys([language, number])
            yield f"cat > {file} <<'END_OF_BLOCK'\n{self._text(key)}END_OF_BLOCK\nchmod 600 {file}"
        elif kind == "valid":
            program, blocks_of_it = rest.split(maxsplit=1)
            for key in self._keys(blocks_of_it.split()):
                text = self._text(key)
                secret = " ".join(re.findall(r'(?:password|token)_file = "([\w.-]+)"', text))
                yield f"cat > valid.toml <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\nchmod 600 valid.toml"
                yield f"secrets {secret}\n{program} --config valid.toml config > valid.out"
        elif kind == "shows":
            self.shown += [self._text(key) for key in self._keys(rest.split())]
        else:
            assert kind in ("place", "needs"), line

    def _keys(self, words: list[str]) -> list[Key]:
        language, *numbers = words
        keys = [("" if language == "-" else language, int(number)) for number in numbers]
        for key in keys:
            assert key in self._blocks, key
            self._open.discard(key)
        return keys

    def _text(self, key: Key) -> str:
        text = self._blocks[key]
        for old, new in self._replaced:
            text = text.replace(old, new)
        return text
