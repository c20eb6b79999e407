"""The page of a load test, with the plots that matplotlib draws."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest

from sam_pipeline.publisher.load_test.plan import FLOW_CONTROL
from tests.services import missing
from tests.support.load_test import figures

RUN = [
    {**figures(), "producers": producers, "consumers": consumers, "size_bytes": size}
    for producers in (1, 40)
    for consumers in (1, 80)
    for size in (0, 100, 1000)
]


@pytest.fixture
def page() -> Callable[..., str]:
    if find_spec("matplotlib") is None:
        missing("matplotlib", "pip install '.[load-test]'")
    return importlib.import_module("sam_pipeline.publisher.load_test.page").page


def test_every_plot_has_two_labels_with_units_and_a_legend(page: Callable[..., str]) -> None:
    text = page([("run", [*RUN, {**figures(scenario=FLOW_CONTROL), "consumers": 5}])])
    plots = [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]

    assert len(plots) == 3 + 1 + 1 + 2
    for plot in plots:
        labels = {str(text.text) for text in plot.iter("{http://www.w3.org/2000/svg}text")}
        assert labels & {"consumers", "payload (bytes)", "time since the start (s)"}
        assert any("/s" in label or "(ms)" in label for label in labels)
        assert labels & {"1 producer", "1 consumer", "the slow consumer", "median"}
    assert text.count("one consumer is slow") == 2


def test_the_page_needs_nothing_from_elsewhere_and_escapes_texts_from_a_broker(
    page: Callable[..., str],
) -> None:
    hostile = '<script>"&$\\x$'

    text = page([(hostile, [{**figures(), "server": hostile, "lost_ids": [hostile]}, *RUN])] * 2)

    elsewhere = r"<(?:script|link|img|iframe|object)\b|\bsrc=|href=\"[^#]|url\([^#]|@import"
    assert not re.findall(elsewhere, text)
    assert hostile not in text
    assert text.count("&lt;script&gt;") >= 3
