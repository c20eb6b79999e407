"""Runs psql as a DBA would: on a script, in transactions only where the script begins them."""

from __future__ import annotations

import os
import subprocess

from sqlalchemy import make_url

from tests.services.postgres import find_programs


def run_psql(database: str, script: str) -> str:
    """The output of psql on a script in which every statement succeeds."""
    url = make_url(database).set(drivername="postgresql")
    done = subprocess.run(
        [
            str(find_programs() / "psql"),
            "--no-psqlrc",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            "--file=-",
            url.render_as_string(hide_password=False),
        ],
        input=script,
        env={"PATH": os.environ["PATH"], "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
