"""A private Spark cluster: a standalone master and workers of one core each, on free ports.

with running_cluster(2) as cluster:
    subprocess.run(["spark-submit", "--master", cluster.url, …])
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.services.process import HOST, ServerProcess, free_ports

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True)
class Cluster:
    url: str
    directory: Path


@contextlib.contextmanager
def running_cluster(workers: int) -> Iterator[Cluster]:
    """A cluster that ends with the block, executors included."""
    port, web_port = free_ports(2)
    url = f"spark://{HOST}:{port}"
    with (
        tempfile.TemporaryDirectory(prefix="sam-spark-") as temporary,
        contextlib.ExitStack() as stack,
    ):
        directory = Path(temporary)

        def start(name: str, *command: str, registered: int) -> None:
            process = ServerProcess(
                command=[str(SPARK_CLASS), *command],
                log=directory / f"{name}.log",
                ready=lambda: _alive_workers(web_port) >= registered,
                env=_environment(),
                cwd=directory,
            )
            stack.callback(process.kill)
            process.start()

        address = ("--host", HOST, "--port")
        start("master", MASTER, *address, str(port), "--webui-port", str(web_port), registered=0)
        for number in range(1, workers + 1):
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"w{number}"))
            command = (WORKER, *address, "0", "--webui-port", "0", *limits, url)
            # The workers start in parallel; only the last start waits for all of them.
            start(f"worker{number}", *command, registered=workers if number == workers else 0)
        yield Cluster(url, directory)


def _alive_workers(web_port: int) -> int:
    """The number of workers according to the master; -1 while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{web_port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # its first answers are HTML, until its JSON page is attached
        return -1


def _environment() -> Mapping[str, str]:
    """Settings for small daemons that listen only on this machine and run this Python."""
    ours = {
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return {**os.environ, **ours}
