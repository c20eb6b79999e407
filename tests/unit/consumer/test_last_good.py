"""Files that are read again for each connection, and go bad."""

from __future__ import annotations

import pytest

from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.process.last_good import LastGood
from sam_pipeline.schema.errors import ConfigError


def test_a_bad_file_leaves_the_last_good_content_in_use_and_is_reported_until_it_is_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contents: list[object] = [
        ConfigError(["a"]),
        "old",
        ConfigError(["b"]),
        ConfigError(["b"]),
        "new",
    ]
    state = State()

    def read() -> object:
        content = contents.pop(0)
        if isinstance(content, Exception):
            raise content
        return content

    password = LastGood("password", read, state.out_of_use)
    with pytest.raises(ConfigError):
        password()
    seen = [(password(), dict(state.unused_files)) for _ in range(4)]

    assert seen == [
        ("old", {}),
        ("old", {"password": "b"}),
        ("old", {"password": "b"}),
        ("new", {}),
    ]
    assert len(caplog.records) == 1  # at the level of warnings
