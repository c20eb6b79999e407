"""A plugin of pytest that also measures the processes which tests start (see `record`).

The child reads $COVERAGE_PROCESS_START; the context of its lines is the test that started it.
"""

from __future__ import annotations

import os

import pytest

SETTINGS = "MUTANTS_COVERAGE_SETTINGS"


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):  # it runs the tests, and is measured by pytest-cov
        os.environ["COVERAGE_PROCESS_START"] = os.environ[SETTINGS]
