"""The installed commands as other accounts, with real user and group ids."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services import PRIVILEGED, missing
from tests.support.commands import PROGRAMS, Answer
from tests.support.invoke import call
from tests.support.page import ROOT

AS_ACCOUNT = """
umask "$1"; uid=$2 groups=$3; shift 3
exec setpriv --reuid "$uid" --regid "$uid" --groups "$groups" "$@"
"""
OPENING = """
closed=$1 kept=$2; shift 2
mount -t tmpfs tmpfs /mnt && mkdir /mnt/kept && mount --bind "$kept" /mnt/kept
mount -t tmpfs -o mode=755 tmpfs "$closed" && mkdir -p "$kept" && mount --bind /mnt/kept "$kept"
"""
"""In a mount namespace of its own: other accounts can reach a directory that only root may enter,
such as a Python in root's home directory."""


@dataclass(frozen=True)
class Account:
    """An account without an entry in /etc/passwd, in a group of its own and in `groups`."""

    uid: int
    home: Path
    groups: Sequence[int] = ()
    umask: str = "077"

    def command(self, *command: str | Path) -> list[str]:
        """The command, with one of our programs by its name, as this account."""
        program, *arguments = map(str, command)
        if (PROGRAMS / program).exists():
            program = str(PROGRAMS / program)
        groups = ",".join(map(str, (self.uid, *self.groups)))
        step, values = AS_ACCOUNT, [self.umask, str(self.uid), groups]
        prefix = []
        for kept in (Path(sys.base_prefix), ROOT):
            if closed := next((above for above in kept.parents[::-1] if not _is_open(above)), None):
                prefix = ["unshare", "--mount"]
                step, values = OPENING + step, [str(closed), str(kept), *values]
        return [*prefix, "sh", "-euc", step, "sh", *values, program, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.home), "STATE_DIRECTORY": str(self.home)}

    def run(self, *command: str | Path, **variables: str) -> Answer:
        """Run a command in the home directory and wait for its end."""
        return call(self.command(*command), self.home, {**self.environment, **variables})

    def succeed(self, *command: str | Path, **variables: str) -> Answer:
        """Like `run`, but fail unless the exit code is 0."""
        answer = self.run(*command, **variables)
        assert answer.code == 0, str(answer)
        return answer


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every account may enter, unlike `tmp_path`."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def account(uid: int, directory: Path, *groups: int, umask: str = "077") -> Account:
    """An account with a home directory below `directory`, which every account may enter."""
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    home = directory / str(uid)
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    someone = Account(uid, home, groups, umask)
    if someone.run("sam-publish", "--version").code:
        missing("the privilege to mount", PRIVILEGED)
    return someone


def _is_open(directory: Path) -> bool:
    return bool(directory.stat().st_mode & 0o001)
