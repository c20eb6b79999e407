"""The fragments of sam.toml: `conf.d/*.toml` beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.settings.files import read_configuration
from sam_pipeline.schema.settings.section import examine, load


@dataclass(frozen=True)
class Tables:
    url: str
    file: Path | None = None


@dataclass(frozen=True)
class Inside:
    size: int = 1
    file: Path | None = None


@dataclass(frozen=True)
class Merged:
    name: str = ""
    brokers: tuple[str, ...] = ()
    spool: Path | None = None
    profiles: tuple[Path, ...] = ()
    broker: tuple[Tables, ...] = ()
    inside: Inside = field(default_factory=Inside)
    words: dict[str, str] = field(default_factory=dict)


class Place:
    """A directory with a sam.toml and fragments."""

    def __init__(self, directory: Path) -> None:
        self.main = directory / "sam.toml"
        self.fragments = directory / "conf.d"

    def write(self, main: str = "", **fragments: str) -> None:
        self.main.write_text(main)
        self.fragments.mkdir(exist_ok=True)
        for name, text in fragments.items():
            (self.fragments / f"{name}.toml").write_text(text)

    def load(self) -> Merged:
        return load(Merged, "consumer", str(self.main), {"HOME": "/nowhere"})

    def problems(self) -> list[str]:
        """The problems, with short names of files."""
        with pytest.raises(ConfigError) as caught:
            self.load()
        return [problem.replace(f"{self.main.parent}/", "") for problem in caught.value.problems]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_tables_are_merged_and_arrays_of_tables_joined_in_the_order_of_names(place: Place) -> None:
    place.write(
        '[consumer]\nname = "a"\n[[consumer.broker]]\nurl = "1"\n[consumer.inside]\nsize = 2\n',
        b='consumer.words.x = "b"\n[[consumer.broker]]\nurl = "3"\n',
        a='[consumer]\nbrokers = ["x"]\nwords = { y = "a" }\n[[consumer.broker]]\nurl = "2"\n',
        c='[consumer.inside]\nfile = "here"\n[database]\nurl = "sqlite://"\n',
    )

    merged = place.load()

    assert (merged.name, merged.brokers) == ("a", ("x",))
    assert [table.url for table in merged.broker] == ["1", "2", "3"]
    assert merged.inside == Inside(2, place.fragments / "here")
    assert merged.words == {"x": "b", "y": "a"}


def test_relative_paths_are_relative_to_the_file_that_names_them(place: Place) -> None:
    place.write(
        '[consumer]\nspool = "main"\n[[consumer.broker]]\nurl = "1"\nfile = "main"\n',
        a='[consumer]\nprofiles = ["a", "/b"]\n[[consumer.broker]]\nurl = "2"\nfile = "a"\n',
    )

    merged = place.load()

    assert merged.spool == place.main.parent / "main"
    assert merged.profiles == (place.fragments / "a", Path("/b"))
    assert [table.file for table in merged.broker] == [
        place.main.parent / "main",
        place.fragments / "a",
    ]


def test_a_key_given_twice_names_both_files_and_lines(place: Place) -> None:
    place.write(
        '[consumer]\nname = "a"\nbrokers = ["x"]\n[consumer.inside]\nsize = 1\n',
        a='[consumer]\nbrokers = ["y"]\nspool = "/s"\n[consumer.inside]\n\nsize = 1\n',
        b='consumer.spool = "/t"\n[[consumer.inside]]\nsize = 3\n',
    )

    assert place.problems() == [
        "conf.d/a.toml:2: [consumer] brokers is also set at sam.toml:3: remove one of them",
        "conf.d/a.toml:6: [consumer.inside] size is also set at sam.toml:5: remove one of them",
        "conf.d/b.toml:1: [consumer] spool is also set at conf.d/a.toml:3: remove one of them",
        "conf.d/b.toml:2: [consumer] inside is also set at sam.toml:4: remove one of them",
    ]


@pytest.mark.parametrize("values", [('["x"]', '["x"]'), ("[]", "[]"), ("[]", '[{ url = "x" }]')])
def test_a_list_in_two_files_is_given_twice(place: Place, values: tuple[str, str]) -> None:
    key = "broker" if "url" in values[1] else "brokers"
    first, second = (f"consumer.{key} = {value}" for value in values)
    place.write(first, a=second)

    (problem,) = place.problems()

    assert problem.startswith(f"conf.d/a.toml:1: [consumer] {key} is also set at sam.toml:1")


def test_problems_name_the_file_and_line_of_the_value(place: Place) -> None:
    place.write(
        '[consumer]\nnam = "a"\n[[consumer.broker]]\nurl = "1"\n[[consumer.broker]]\nurl = 2\n',
        a='[consumer]\nspool = 1\n\n[[consumer.broker]]\nurl = "3"\n[[consumer.broker]]\nurl = 4\n',
        b="[consumr]\n[consumer.inside]\n\nsize = true\n[[consumer.broker]]\nfile = 'x'\n",
    )

    assert sorted(place.problems()) == [
        "conf.d/a.toml:2: [consumer] spool: expected a path, not 1",
        "conf.d/a.toml:7: [consumer] broker[4] url: expected a string, not 4",
        "conf.d/b.toml:1: unknown section [consumr] (did you mean consumer?)",
        "conf.d/b.toml:4: [consumer.inside] size: expected a whole number, not True",
        "conf.d/b.toml:5: [consumer] broker[5] url is missing",
        "sam.toml:2: [consumer] unknown key nam (did you mean name?)",
        "sam.toml:6: [consumer] broker[2] url: expected a string, not 2",
    ]


def test_the_origin_of_each_key_is_known(place: Place) -> None:
    place.write(
        '[consumer]\nname = "a"\n[[consumer.broker]]\nurl = "1"\n',
        a='[[consumer.broker]]\nurl = "2"\nfile = "x"\n[consumer.words]\nx = "y"\n',
    )

    found = examine(Merged, "consumer", str(place.main), {"SAM_CONSUMER_SPOOL": "/s"})

    fragment = place.fragments / "a.toml"
    assert found.origin("name") == f"{place.main}:2"
    assert found.origin("broker", 1, "url") == f"{place.main}:4"
    assert found.origin("broker", 2, "file") == f"{fragment}:3"
    assert found.origin("words", "x") == f"{fragment}:5"
    assert found.origin("spool") == "SAM_CONSUMER_SPOOL"
    assert found.origin("brokers") == "default"


@pytest.mark.parametrize(
    "name", [".a.toml", "a.toml.rpmnew", "a.toml.dpkg-old", "a.toml~", "#a.toml#", "README"]
)
def test_other_files_in_the_directory_are_not_read(place: Place, name: str) -> None:
    place.write('consumer.name = "a"')
    (place.fragments / name).write_text("not TOML")

    assert place.load().name == "a"


def test_a_file_of_another_name_has_no_fragments(place: Place) -> None:
    place.write(a='consumer.name = "a"')
    place.main = place.main.rename(place.main.with_name("owner.toml"))

    assert place.load().name == ""


def test_an_empty_directory_changes_nothing(place: Place) -> None:
    place.write('consumer.name = "a"')

    assert place.load().name == "a"


def test_all_files_that_cannot_be_read_are_reported_at_once_with_all_other_problems(
    place: Place,
) -> None:
    place.write(
        '[consumer]\nnam = "a"\n', broken="[consumer]\n\nname = \n", good="consumer.nam = 1"
    )
    (place.fragments / "bytes.toml").write_bytes(b"[consumer]\nname = '\xe9'\n")
    (place.fragments / "directory.toml").mkdir()
    (place.fragments / "link.toml").symlink_to("nowhere")
    os.mkfifo(place.fragments / "pipe.toml")

    problems = place.problems()

    assert [problem.partition(": ")[0] for problem in problems] == [
        "conf.d/broken.toml:3",
        "conf.d/bytes.toml:2",
        "conf.d/directory.toml",
        "conf.d/good.toml:1",
        "conf.d/link.toml",
        "conf.d/pipe.toml",
        "sam.toml:2",
    ]
    assert "is not UTF-8 (byte 0xe9)" in problems[1]
    assert problems[2].endswith("not a regular file")
    assert "is also set at sam.toml:2" in problems[3]
    assert problems[4].endswith("is a link to nowhere, which does not exist")
    assert "unknown key" in problems[6]


def test_a_broken_sam_toml_does_not_hide_the_problems_of_its_fragments(place: Place) -> None:
    place.write("[consumer\n", a="[consumer]\nspool = 1\n")

    assert [problem.partition(": ")[0] for problem in place.problems()] == [
        "sam.toml:1",
        "conf.d/a.toml:2",
    ]


def test_a_key_that_may_be_in_a_broken_file_is_not_reported_as_missing(place: Place) -> None:
    place.write("[[publisher.broker]]\nurl = 1\n", a="name =")

    with pytest.raises(ConfigError) as caught:
        load(Tables, "consumer", str(place.main), {})

    assert len(caught.value.problems) == 1
    assert "missing" not in str(caught.value)


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_conf_d_that_is_not_a_directory_is_a_problem(place: Place, make: object) -> None:
    place.main.write_text("")
    assert callable(make)
    make(place.fragments)

    (problem,) = place.problems()

    assert problem.startswith("conf.d: ")


def test_a_fragment_that_is_removed_while_it_is_read_is_ignored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write('consumer.name = "a"')
    monkeypatch.setattr(os, "listdir", lambda path: ["gone.toml"])

    assert place.load().name == "a"


@pytest.mark.parametrize(("mode", "exposed"), [(0o644, True), (0o600, False)])
def test_a_secret_in_a_fragment_needs_a_fragment_that_others_cannot_read(
    place: Place, mode: int, exposed: bool
) -> None:
    place.write('consumer.name = "a"', a='[database]\n\nurl = "postgresql://u:hidden@h/sam"\n')
    place.main.chmod(0o644)
    (place.fragments / "a.toml").chmod(mode)

    if not exposed:
        assert place.load().name == "a"
        return
    (problem,) = place.problems()
    assert problem.startswith("conf.d/a.toml:3: [database] url: contains a secret")
    assert "0644" in problem
    assert "hidden" not in problem


def test_a_secret_in_a_private_sam_toml_may_have_fragments_for_all(place: Place) -> None:
    place.write('[database]\nurl = "postgresql://u:hidden@h/sam"\n', a='consumer.name = "a"\n')
    place.main.chmod(0o600)
    (place.fragments / "a.toml").chmod(0o644)

    assert place.load().name == "a"


def test_the_files_are_known_in_the_order_in_which_they_are_read(place: Place) -> None:
    place.write(b="", a="", **{"10-c": ""})

    files = [file.path.name for file in read_configuration(place.main).files]

    assert files == ["sam.toml", "10-c.toml", "a.toml", "b.toml"]
