"""`sam-consume run --to spool:///…`: messages move into a directory queue to be loaded later."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

from dirq.QueueSimple import QueueSimple

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.broker import StompServer
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results, subscribe

COUNT = 300


def messages_by_id(queue: DirectoryQueue) -> dict[str, Message]:
    messages = [queue.read(name) for name in queue.names()]
    return {message.message_id: message for message in messages}


def test_messages_reach_the_database_through_a_relay(
    tmp_path: Path, postgres_url: str, broker: StompServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    spool = tmp_path / "queue"
    relay = make_site(tmp_path, postgres_url, [broker.url], destination)
    subscribe(broker, relay.name, destination)
    sent = results(COUNT)
    publish(broker.host, broker.port, destination, sent)

    moved = relay.run("run", "--drain", "--json", "--to", f"spool://{spool}")
    relayed = messages_by_id(DirectoryQueue(spool))
    loader_directory = tmp_path / "back"
    loader_directory.mkdir()
    loader = make_site(loader_directory, postgres_url, [f"spool://{spool}"])
    loaded = loader.drain()

    assert (moved.returncode, loaded.code, loaded.summary["rows"]) == (0, 0, COUNT)
    assert set(relayed) == {message.message_id for message in sent}
    for message in sent:
        relayed_message = relayed[message.message_id]
        assert relayed_message.body == message.body
        assert message.headers.items() <= relayed_message.headers.items()
        assert relayed_message.headers["destination"].endswith(destination.rpartition("/")[2])
    assert loader.rows() == COUNT
    assert relay.drain().summary["messages"] == 0  # acked at the broker


def test_a_relay_needs_no_database(tmp_path: Path) -> None:
    fill_spool(tmp_path / "in", results(5))
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n')

    moved = Site(config, "", "").run("run", "--drain", "--to", f"spool://{tmp_path}/out")

    assert moved.returncode == 0, moved.stderr
    assert (DirectoryQueue(tmp_path / "in").count(), DirectoryQueue(tmp_path / "out").count()) == (
        0,
        5,
    )


WITHOUT_DATABASE = """
import sys
sys.modules["sqlalchemy"] = None
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]) or any(name.startswith("sam_pipeline.sql") for name in sys.modules))
"""


def test_a_relay_runs_without_sqlalchemy(tmp_path: Path) -> None:
    fill_spool(tmp_path / "in", results(5))
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n')
    relay = Site(config, "", "").command("run", "--to", f"spool://{tmp_path}/out")
    module = relay.index("-m")
    command = [*relay[:module], "-c", WITHOUT_DATABASE, *relay[module + 2 :]]

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as daemon:
        eventually(lambda: DirectoryQueue(tmp_path / "out").count() == 5 or daemon.poll())
        daemon.terminate()
        _, log = daemon.communicate(timeout=60)

    assert daemon.returncode == 0, log
    assert "stopped: 5 messages" in log


def test_a_relayed_queue_is_readable_with_dirq(tmp_path: Path) -> None:
    fill_spool(tmp_path / "in", results(5))
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n')

    Site(config, "", "").run("run", "--drain", "--to", f"spool://{tmp_path}/out")

    assert QueueSimple(str(tmp_path / "out")).count() == 5


def test_a_queue_is_not_relayed_into_itself(tmp_path: Path) -> None:
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n')

    refused = Site(config, "", "").run("run", "--to", f"spool://{tmp_path}/in")

    assert refused.returncode == 78
    assert "brokers to read from" in refused.stderr
    assert f"spool://{tmp_path}/in" in refused.stderr


def test_the_option_wins_over_the_target_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "sam.toml"
    keys = f'brokers = ["spool://{tmp_path}/in"]\nto = ["spool://{tmp_path}/kept"]\n'
    config.write_text(f"[consumer]\n{keys}")
    relay = Site(config, "", "")

    for options, target in (([], "kept"), (["--to", f"spool://{tmp_path}/named"], "named")):
        fill_spool(tmp_path / "in", results(5))
        moved = relay.run("run", "--drain", *options)

        assert moved.returncode == 0, moved.stderr
        assert QueueSimple(str(tmp_path / target)).count() == 5
    assert relay.run("check").returncode == 0


def test_a_relay_waits_while_its_directory_cannot_be_written(tmp_path: Path) -> None:
    fill_spool(tmp_path / "in", results(5))
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n')
    (tmp_path / "out").write_text("no directory")

    waited = Site(config, "", "").run(
        "run", "--drain", "--timeout", "1", "--to", f"spool://{tmp_path}/out"
    )

    assert waited.returncode in (73, 74), waited.stderr
    assert DirectoryQueue(tmp_path / "in").count() == 5
