"""A master of a standalone cluster is looked for before Spark starts."""

from __future__ import annotations

import socket

import pytest

from sam_pipeline.spark_jobs.compute.cluster.master import require_master
from sam_pipeline.spark_jobs.errors import SparkFailed


def test_one_master_that_listens_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))

        require_master(f"spark://127.0.0.1:{port(closed)},127.0.0.1:{port(listening)}")


def test_all_masters_that_are_away_are_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{port(closed)}"

        with pytest.raises(SparkFailed) as refused:
            require_master(f"spark://{address},here,here:x")

    assert f"{address}: connection refused" in str(refused.value)
    assert "here: not a master" in str(refused.value)
    assert "here:x: not a master" in str(refused.value)


def test_only_a_standalone_cluster_has_such_a_master() -> None:
    require_master("local[2]")
    require_master("yarn")


def port(of: socket.socket) -> int:
    return int(of.getsockname()[1])
