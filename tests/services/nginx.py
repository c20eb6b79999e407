"""A private nginx on free ports, with the `server` blocks of a test.

with running_nginx(text, tmp_path):
    ...
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.process import ServerProcess, port_is_open

HOW_TO_GET_IT = "apt-get install nginx"

CONFIG = """\
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
{user}
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {blocks}
}}
"""


@contextlib.contextmanager
def running_nginx(blocks: str, port: int, directory: Path) -> Iterator[None]:
    """A running nginx whose `blocks` listen on the port, in a directory of its own."""
    # In a directory of administrators, which is not on every account's path.
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise ServiceMissing("nginx", HOW_TO_GET_IT)
    directory.mkdir()
    config = directory / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # of the worker; the files are of the test
    config.write_text(CONFIG.format(directory=directory, blocks=blocks, user=user))
    process = ServerProcess(
        command=[
            program,
            "-p",
            str(directory),
            "-e",
            str(directory / "error.log"),
            "-c",
            str(config),
        ],
        log=directory / "log",
        ready=lambda: port_is_open(port),
        cwd=directory,
    )
    try:
        process.start()
        yield
    finally:
        process.kill()
