"""Run a test that takes the fixture `broker` with other brokers than the default ones."""

from __future__ import annotations

import pytest


def on_brokers(*fixtures: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("broker", fixtures, indirect=True)
