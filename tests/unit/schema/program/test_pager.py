"""Which pager is used."""

from __future__ import annotations

import shutil

import pytest

from sam_pipeline.schema.program.pager import pager_command


@pytest.mark.parametrize(
    ("pager", "command"),
    [("more", ["more"]), ("less -R 'a b'", ["less", "-R", "a b"]), ("", []), ("cat", [])],
)
def test_the_pager_is_that_of_the_environment(pager: str, command: list[str]) -> None:
    assert pager_command({"PAGER": pager}) == command


@pytest.mark.parametrize(("path", "command"), [("/usr/bin/less", ["less"]), (None, [])])
def test_the_default_is_less_if_it_is_installed(
    path: str | None, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: path)

    assert pager_command({}) == command
