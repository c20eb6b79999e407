"""The elements of XML files: several documents in one file, and malicious ones."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import BAD_DATA, IO_ERROR, NO_INPUT
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports import xml_elements
from sam_pipeline.sql.imports.xml_elements import elements

BOMB = """<?xml version="1.0"?>
<!DOCTYPE results [
 <!ENTITY a "aaaaaaaaaa">
 <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
]>
<results><A>&b;</A></results>
"""
EXTERNAL = """<!DOCTYPE results [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<results><A>&x;</A></results>
"""
EXTERNAL_DTD = '<!DOCTYPE results SYSTEM "http://example.org/x.dtd"><results><A/></results>'


def tags(path: Path) -> list[tuple[str, int]]:
    """Names of the elements and the lines where they begin."""
    return [
        (element.tag, int(where.rpartition(" ")[2])) for where, element in elements(path, "results")
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.xml"


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 30, 65536])
@pytest.mark.parametrize(
    "between", ["\n", "", '\n<?xml version="1.0" encoding="UTF-8"?>\n', "<!-- page 2 -->\n<?x y?>"]
)
def test_consecutive_documents_are_read_as_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, between: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(xml_elements, "CHUNK_BYTES", chunk_bytes)
    file.write_text(f"<results>\n<A/>\n<B>x</B></results>{between}<results><C/></results>\n\n")

    assert tags(file) == [("A", 2), ("B", 3), ("C", 3 + between.count("\n"))]


def test_an_empty_page_has_no_elements(file: Path) -> None:
    file.write_text("<results/>\n<results><A/></results><results></results>")

    assert tags(file) == [("A", 2)]


def test_an_element_comes_with_its_content(file: Path) -> None:
    file.write_text('<results><A x="1">a<B>b &amp; <![CDATA[<c>]]></B></A></results>')

    [(_, element)] = elements(file, "results")

    assert (element.get("x"), element.text, element.findtext("B")) == ("1", "a", "b & <c>")


@pytest.mark.parametrize("text", [BOMB, EXTERNAL, EXTERNAL_DTD, f"<results/>\n{BOMB[22:]}"])
def test_a_document_type_is_refused_before_anything_is_expanded(file: Path, text: str) -> None:
    file.write_text(text)

    with pytest.raises(BadInput, match=r"x\.xml, line \d: has a document type") as caught:
        tags(file)

    assert caught.value.exit_code == BAD_DATA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file ends here"),
        ("<results>\n<A>", "line 2: the file ends here"),
        ("<results>\n<A></results>", "line 2: not valid XML: mismatched tag"),
        ("<results/>\n<results>\n&nbsp;</results>", "line 3: not valid XML: undefined entity"),
        ("<results/>\njunk", "line 2: not valid XML"),
        ("{}", "line 1: not valid XML"),
        ("<results/>\n<error>no such method</error>", "line 2: begins with <error>"),
        ('<?xml version="1.0" encoding="x-none"?><results/>', "unknown encoding"),
    ],
)
def test_any_other_file_is_refused_with_its_line(file: Path, text: str, message: str) -> None:
    file.write_text(text)

    with pytest.raises(BadInput, match=message):
        tags(file)


def test_a_missing_file_and_a_directory_have_exit_codes(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no\.xml: no such file") as missing:
        tags(tmp_path / "no.xml")
    with pytest.raises(BadInput) as directory:
        tags(tmp_path)

    assert (missing.value.exit_code, directory.value.exit_code) == (NO_INPUT, IO_ERROR)


def test_memory_does_not_grow_with_the_file(file: Path) -> None:
    element = f"<A><B>{'x' * 1000}</B></A>\n"
    with file.open("w") as output:
        output.write("<results>\n")
        output.writelines(element for _ in range(10_000))
        output.write("</results>\n")

    tracemalloc.start()
    number = sum(1 for _ in elements(file, "results"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert number == 10_000
    assert peak < 3_000_000
