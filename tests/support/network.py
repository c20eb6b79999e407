"""A network namespace, in which packets can be dropped without disturbing anybody else.

    with own_network(), running_postgres() as server:
        with silent(server.port):
            ...  # connections stay open, but neither side hears the other

Only the calling thread, and what it starts, is inside.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from tests.services import PRIVILEGED, missing

CLONE_NEWNET = 0x40000000
TABLE = "inet sam"
# On loopback a packet that is dropped on its way out would be an error for the sender; one that is
# dropped on its way in is lost, like on a cable.
CHAIN = "input { type filter hook input priority 0; }"

_libc = ctypes.CDLL(None)


@contextmanager
def own_network() -> Iterator[None]:
    """A namespace with nothing but a loopback interface, until the block ends."""
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        if which(program) is None:
            missing(program, f"apt-get install {package}")
    with Path("/proc/thread-self/ns/net").open() as outside:
        if _libc.unshare(CLONE_NEWNET):
            missing("the privilege to make a network namespace", PRIVILEGED)
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            if _libc.setns(outside.fileno(), CLONE_NEWNET):
                raise OSError("can't return to the network of this machine")


@contextmanager
def silent(port: int) -> Iterator[None]:
    """Drop all packets to and from a TCP port of this namespace inside the block."""
    rules = f"""
        add table {TABLE}
        add chain {TABLE} {CHAIN}
        add rule {TABLE} input tcp dport {port} drop
        add rule {TABLE} input tcp sport {port} drop
    """
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", *TABLE.split()], check=True)
