"""A consumer as process 1 of a container: an account without a name, and a read-only root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import PRIVILEGED, missing
from tests.support.consumer.site import Site, results, sqlite_site
from tests.support.waiting import eventually

NUMBER = 54321
START = """
mount --bind "$1" "$1" && mount -o remount,ro,bind / && shift &&
exec setpriv --reuid={number} --regid={number} --clear-groups "$@"
"""


@pytest.fixture
def site() -> Iterator[Site]:
    """In a directory that belongs to a number without a name."""
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    with tempfile.TemporaryDirectory(prefix="sam-container-") as name:
        site = sqlite_site(Path(name))
        site.fill(*results(3))
        for path in (Path(name), *Path(name).rglob("*")):
            os.chown(path, NUMBER, NUMBER)
        yield site


def test_it_needs_no_name_no_home_and_one_directory_and_ends_at_sigterm(site: Site) -> None:
    directory = site.config.parent
    environment = {"STATE_DIRECTORY": str(directory / "state"), "PATH": "/usr/bin:/bin"}
    environment["SQLITE_TMPDIR"] = str(directory)
    contained = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]
    program = [sys.executable, "-m", "sam_pipeline.consumer", "--config", str(site.config), "run"]
    assert all(map(shutil.which, ("unshare", "setpriv")))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*contained, START.format(number=NUMBER), "sh", str(directory), *program],
            stderr=log,
            env=environment,
        )
        try:
            eventually(lambda: site.rows() == 3 or process.poll() is not None)
            assert site.rows() == 3, (directory / "log").read_text()
            [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(child), 15)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()


def test_without_a_directory_for_its_state_it_says_which_variable_names_one(site: Site) -> None:
    command = site.command("run", "--drain")[2:]  # without STATE_DIRECTORY
    program = ["setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups", *command]
    done = subprocess.run(program, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)

    assert done.returncode == 73
    assert "STATE_DIRECTORY" in done.stderr
