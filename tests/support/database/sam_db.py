"""`sam-db` called in this process, on the database of `$SAM_DATABASE_URL`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import OK, USAGE
from sam_pipeline.sql.cli import main

Output = pytest.CaptureFixture[str]


def answer(capsys: Output, *command: str) -> Any:
    """The JSON document that a command prints."""
    assert main([*command, "--json"]) == OK
    return json.loads(capsys.readouterr().out)


def refusal(capsys: Output, *command: str) -> str:
    """The message of a usage error."""
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == USAGE
    return capsys.readouterr().err


def url_of(engine: Engine) -> str:
    """The URL of an engine's database, to configure a command with."""
    if engine.dialect.name == "sqlite":
        return f"sqlite:///{engine.get_execution_options()['sam_file']}"
    return engine.url.render_as_string(hide_password=False)
