"""Masking a text by its shape, with one digit for all, is the same as masking the text itself."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.explain import causes

WORDS = """
ce01|ce02|ce01.example.org|CE1|HTTP|500|HTTP/1.1|exit code 3|errno|12:30:05|Oct|3|0x1f|-5|v1.2.3
2026-10-11T10:00Z|5xabcdef12|ab12cd34|/tmp/x9/y|fe80::1|10.0.0.1|(782|srm2:8446/x
"""


@given(
    st.lists(st.sampled_from(re.split(r"[|\n]", WORDS)) | st.text(max_size=12), max_size=6).map(
        " ".join
    ),
    st.sampled_from(["", "ce01.example.org", "ce1", "1", "srm2.example.org"]),
)
@example("ce02 refused", "ce01.example.org")
@example("exit code 3", "")
def test_a_text_is_masked_as_if_its_digits_mattered(text: str, host_name: str) -> None:
    assert causes.masked(text, host_name) == causes._masked(text, host_name)
