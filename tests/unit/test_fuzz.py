"""Some thousands of what `make fuzz` does by the million."""

from __future__ import annotations

import pytest

from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS

INPUTS = 2_000


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_the_documented_comes_of_good_inputs_with_something_wrong(name: str) -> None:
    figures = fuzz(name, INPUTS, seed=6)

    assert figures.inputs == INPUTS
