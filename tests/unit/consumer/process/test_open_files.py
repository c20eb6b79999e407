"""How many connections the limits on open files allow."""

from __future__ import annotations

import resource

import pytest

from sam_pipeline.consumer.process.open_files import OTHER_FILES, allow_connections


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "soft_after"),
    [
        (1000, 1000, 500, 500, 1000),
        (300, 1000, 500, 500, 500 + OTHER_FILES),
        (300, resource.RLIM_INFINITY, 5000, 5000, 5000 + OTHER_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 5000, 5000, resource.RLIM_INFINITY),
        (300, 1000, 5000, 1000 - OTHER_FILES, 1000),
        (100, 100, 5000, 1, 100),
    ],
)
def test_as_many_connections_are_allowed_as_the_hard_limit_permits(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    wanted: int,
    allowed: int,
    soft_after: int,
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)

    assert allow_connections(wanted) == allowed
    assert limits == {resource.RLIMIT_NOFILE: (soft_after, hard)}
