"""Restrict a test to one dialect, without generating the cases of the other one."""

from __future__ import annotations

import pytest


def only_on(dialect: str, fixture: str = "engine") -> pytest.MarkDecorator:
    """For a test that uses the fixture, itself or through another one."""
    return pytest.mark.parametrize(fixture, [dialect], indirect=True)
