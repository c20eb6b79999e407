"""The documents of NRDP: their results, and what is refused as a whole."""

from __future__ import annotations

import json
import string
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.records.nrdp import (
    UnreadableResults,
    results_in_json,
    results_in_xml,
)

BOMB = """<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>
<checkresults><checkresult><output>&b;</output></checkresult></checkresults>"""
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


def xml_of(content: str) -> str:
    return f"<checkresults><checkresult type='service'>{content}</checkresult></checkresults>"


def test_the_values_of_a_result_are_its_elements() -> None:
    xml = xml_of(
        "<hostname>a</hostname><output>1 &lt; 2 <![CDATA[& <x>]]><b>no</b>!</output><time/>"
    )
    untyped = "<checkresults><checkresult><type>service</type></checkresult><other/></checkresults>"
    latin = f'<?xml version="1.0" encoding="iso-8859-1"?>{xml_of("<output>é</output>")}'

    assert results_in_xml(xml) == [
        {"type": "service", "hostname": "a", "output": "1 < 2 & <x>!", "time": ""}
    ]
    # A result without a type is that of a host.
    assert (
        results_in_xml(untyped) == results_in_json('{"checkresults": [{}]}') == [{"type": "host"}]
    )
    # A declared encoding counts for bytes.
    assert results_in_xml(latin.encode("latin-1"))[0]["output"] == "é"
    assert results_in_xml(latin)[0]["output"] == "é"


NO_DOCUMENTS = (
    *(BOMB, '<!DOCTYPE a SYSTEM "file:///etc/passwd"><checkresults/>', "", b"\xff\xfe"),
    *("<checkresults>&a;</checkresults>", "<checkresult/>", "<checkresults>"),
    "<checkresults/><checkresults/>",
    *(b'<?xml version="1.0" encoding="%s"?><checkresults/>' % name for name in (b"x", b"utf-7")),
)


@pytest.mark.parametrize("xml", NO_DOCUMENTS)
def test_a_document_type_and_what_is_not_a_document_are_refused(xml: str | bytes) -> None:
    with pytest.raises(UnreadableResults):
        results_in_xml(xml)


def test_an_error_has_its_line() -> None:
    with pytest.raises(UnreadableResults) as in_xml:
        results_in_xml("<checkresults>\n<checkresult>\n</checkresults>")
    with pytest.raises(UnreadableResults) as in_json:
        results_in_json('{"checkresults":\n[{},}]}')

    assert (in_xml.value.line, in_json.value.line) == (3, 2)


def test_a_long_text_takes_no_quadratic_time() -> None:
    text = "&amp;<!-- -->" * 200_000

    assert results_in_xml(xml_of(f"<output>{text}</output>"))[0]["output"] == "&" * 200_000


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1), TEXTS))
def test_both_forms_have_the_same_results(values: dict[str, str]) -> None:
    values = {name: value for name, value in values.items() if name not in ("type", "checkresult")}
    escaped = {
        name: value.replace("&", "&amp;").replace("<", "&lt;") for name, value in values.items()
    }
    xml = xml_of("".join(f"<{name}>{value}</{name}>" for name, value in escaped.items()))
    document = {"checkresults": [{"checkresult": {"type": "service"}, **values}]}

    assert results_in_xml(xml) == results_in_json(json.dumps(document))


@given(st.text("<>/='\"&;!?[]- \0\né" + string.ascii_lowercase) | st.text() | st.binary())
def test_whatever_is_read_has_results_or_is_refused(data: str | bytes) -> None:
    for read in (results_in_xml, results_in_json):
        for document in (data, f"<checkresults><checkresult>{data!r}"):
            with suppress(UnreadableResults):
                assert isinstance(read(document), list)
