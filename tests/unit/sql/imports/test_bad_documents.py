"""A document that can't be used is refused as a whole: one message with file, line and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import BAD_DATA, NO_INPUT
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import FeedRows, FeedRules, taken
from sam_pipeline.sql.imports.formats import documents
from sam_pipeline.sql.imports.formats.argo import read_argo
from sam_pipeline.sql.imports.formats.cric import read_cric
from sam_pipeline.sql.imports.formats.osg import read_osg
from sam_pipeline.sql.imports.formats.vofeed import read_vo_feed
from tests.support.feed_samples import (
    ARGO_DOWNTIMES,
    ARGO_TOPOLOGY,
    CRIC_DOWNTIME,
    OSG_DOWNTIME_YAML,
    OSG_GROUP_YAML,
    STORAGE,
    VO_FEED,
    osg_downtime,
    osg_downtimes,
    osg_group,
    osg_resource,
    osg_service,
    osg_summary,
)

GOOD: Mapping[str, tuple[Callable[[Path], FeedRows], str]] = {
    "cric-services": (
        lambda path: read_cric({"endpoints": [path]}),
        json.dumps({"EXAMPLE_SE": {**STORAGE, "country": "Österreich"}}, ensure_ascii=False),
    ),
    "cric-downtimes": (
        lambda path: read_cric({"downtimes": [path]}),
        json.dumps({"1": {**CRIC_DOWNTIME, "description": "Störung"}}, ensure_ascii=False),
    ),
    "vofeed": (
        lambda path: read_vo_feed({"feed": [path]}),
        VO_FEED.replace("ISO-8859-1", "UTF-8"),
    ),
    "osg-summary": (
        lambda path: read_osg({"endpoints": [path]}),
        osg_summary(osg_group("Zürich", osg_resource("ce.example.edu", osg_service("CE")))),
    ),
    "osg-downtimes": (
        lambda path: read_osg({"downtimes": [path]}),
        osg_downtimes(osg_downtime(Description="Störung")),
    ),
    "osg-yaml": (
        lambda path: read_osg({"downtimes": [path]}),
        OSG_DOWNTIME_YAML.replace("Power", "Störung: Strom")
        .replace(": Stö", ": 'Stö", 1)
        .replace("cooling", "cooling'"),
    ),
    "argo-topology": (
        lambda path: read_argo({"endpoints": [path]}),
        ARGO_TOPOLOGY.replace("Greece", "Ελλάδα"),
    ),
    "argo-downtimes": (
        lambda path: read_argo({"downtimes": [path]}, "%m/%d/%Y %H:%M"),
        ARGO_DOWNTIMES.replace("disks", "Störung"),
    ),
}
"""A reader of each kind of document, and a good one, whose letters are not all ASCII."""

OTHER_LETTERS = re.compile(rb"[\x80-\xff]+")
HTML = "<!DOCTYPE html>\n<html><head><title>Maintenance</title></head><body>Back soon<br></html>\n"
BROKEN: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "empty"),
    "blank": (lambda _: b"\n \n", "empty"),
    "half": (lambda good: good[: len(good) * 2 // 5], "truncated|2 values for 7|no ResourceName"),
    "html": (lambda _: HTML.encode(), "HTML|must be a list|must name the columns"),
    "another-feed": (
        lambda _: b"<results><SITE NAME='A'/></results>",
        "another document|must be a list|must name the columns",
    ),
    "latin-1": (lambda good: OTHER_LETTERS.sub(b"\xf6", good), "UTF-8"),
    "nul": (lambda good: good[:40] + b"\0" + good[40:], "not valid|must name the columns"),
    "later-version": (
        lambda _: b'{"version": 3, "items": []}',
        "must be an object|not valid|must be a list|must name the columns",
    ),
}
"""Damages of a document, and what is said about them."""

WHOLE = [kind for kind in GOOD if not kind.endswith(("feed", "summary", "osg-downtimes"))]
"""The kinds that are read at once, unlike XML."""
FILE = "EXAMPLE_T2_downtime.yaml"


def path_of(directory: Path, kind: str) -> Path:
    (directory / "EXAMPLE_T2.yaml").write_text(OSG_GROUP_YAML)
    return directory / (FILE if kind == "osg-yaml" else "export")


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_document_is_taken(tmp_path: Path, kind: str) -> None:
    read, text = GOOD[kind]
    path = path_of(tmp_path, kind)

    for encoded in (text.encode(), text.encode("utf-8-sig")):
        path.write_bytes(encoded)
        rows = taken(read(path), FeedRules())
        assert rows.endpoints or rows.downtimes


@pytest.mark.parametrize("damage", BROKEN)
@pytest.mark.parametrize("kind", GOOD)
def test_a_broken_document_is_refused_with_its_file_and_a_reason(
    tmp_path: Path, kind: str, damage: str
) -> None:
    read, text = GOOD[kind]
    path = path_of(tmp_path, kind)
    break_it, reason = BROKEN[damage]
    path.write_bytes(break_it(text.encode()))

    with pytest.raises(BadInput, match=reason) as caught:
        taken(read(path), FeedRules())

    *reasons, outcome = str(caught.value).splitlines()
    assert caught.value.exit_code == BAD_DATA
    assert all(line.startswith(f"{path}") for line in reasons or [outcome])
    assert "nothing was changed" in outcome


@pytest.mark.parametrize("kind", WHOLE)
def test_a_file_larger_than_any_export_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("JSON", "YAML", "CSV"):
        monkeypatch.setattr(documents, f"MAX_{name}_BYTES", 1 << 20)
    read, text = GOOD[kind]
    path = path_of(tmp_path, kind)
    with path.open("wb") as file:
        file.write(text.encode())
        file.truncate(3 << 20)

    with pytest.raises(BadInput, match="has more than 1 MiB, and no export is"):
        read(path)


@pytest.mark.parametrize("kind", GOOD)
def test_a_missing_file_has_its_own_exit_code(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BadInput, match="no such file") as caught:
        GOOD[kind][0](tmp_path / "nowhere")

    assert caught.value.exit_code == NO_INPUT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- &x {ID: 1}\n- *x\n", "line 2: has an alias"),
        ("- ID: !!python/object/apply:os.getcwd []\n", "line 1: .*constructor for the tag"),
        ("- ID: 1\n---\n- ID: 2\n", "line 2: not valid YAML"),
        ("ID: 1\n", "must be a list of downtimes"),
        ("# only a comment\n", "must be a list of downtimes"),
        ("- " * 100_000, "not valid YAML"),
    ],
)
def test_yaml_with_aliases_tags_or_other_contents_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = path_of(tmp_path, "osg-yaml")
    path.write_text(text)

    with pytest.raises(BadInput, match=problem):
        read_osg({"downtimes": [path]})


def test_an_entry_of_thousands_of_keys_takes_no_longer_than_many_entries(tmp_path: Path) -> None:
    path = path_of(tmp_path, "osg-yaml")
    path.write_text(f"- {{{', '.join(f'k{n}: 1' for n in range(100_000))}}}\n")

    assert len(read_osg({"downtimes": [path]}).left_out) == 1


def test_a_yaml_without_the_file_of_its_group_is_refused(tmp_path: Path) -> None:
    for name in ("EXAMPLE_downtime.yaml", "downtimes.yaml"):
        path = tmp_path / name
        path.write_text(OSG_DOWNTIME_YAML)
        with pytest.raises(BadInput, match=r"GROUP\.yaml beside it"):
            read_osg({"downtimes": [path]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": {}, "a": {}}', "'a' appears twice"),
        ('{"error": "Permission denied"}', "an error: Permission denied"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": {}} trailing', "line 1: not valid JSON"),
    ],
)
def test_json_with_repeated_names_or_an_error_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    with pytest.raises(BadInput, match=problem):
        read_cric({"endpoints": [path]})
