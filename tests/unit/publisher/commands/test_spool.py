"""`sam-publish spool …`: inspecting and repairing a spool."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher.commands import spool as spool_command
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.errors import ConfigError, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message


class Scene:
    """A spool, and the output of the commands about it."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.queue = DirectoryQueue(directory / "spool")
        self.config = PublisherConfig(spool=self.queue.path, state=directory / "state")
        self._capture = capture

    def run(self, action: str, **options: Any) -> tuple[int, str]:
        chosen = {"json": False, "limit": None, "ids": [], "loop": False, "copy": None, **options}
        code = spool_command.run_action(
            argparse.Namespace(action=action, verbosity=0, **chosen), self.config
        )
        return code, self._capture.readouterr().out

    def run_json(self, action: str, **options: Any) -> Any:
        """The JSON document that `run` prints."""
        return json.loads(self.run(action, json=True, **options)[1])

    def add(self, message: Message | None = None) -> str:
        return self.queue.add(message or metric_message())

    def damage(self, name: str, content: bytes = b"") -> None:
        (self.queue.path / name).write_bytes(content)

    def set_aside(self) -> str:
        """The name of a damaged element of one byte in the quarantine."""
        name = self.add()
        self.damage(name, b"{")
        self.queue.lock(name)
        return self.queue.quarantine(name, "cut off").name

    def place(self, name: str, seconds_old: float) -> None:
        path = self.queue.path / name
        path.touch()
        os.utime(path, (0, time.time() - seconds_old))


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(tmp_path, capsys)


def test_list_shows_each_element_with_its_content_oldest_first(scene: Scene) -> None:
    message = metric_message(destination="/queue/mine")
    names = [scene.add(message), scene.add()]
    scene.queue.lock(names[1])

    first, second = scene.run_json("list")

    assert first.pop("written_at").endswith("Z")
    assert first == {
        "element": names[0],
        "size_bytes": (scene.queue.path / names[0]).stat().st_size,
        "locked": False,
        "set_aside": False,
        "message_class": "metricOutput",
        "message_id": message.message_id,
        "destination": "/queue/mine",
        "damage": None,
        "refusals": {},
    }
    assert (second["element"], second["locked"]) == (names[1], True)


def test_list_prints_one_line_per_element_up_to_the_limit(scene: Scene) -> None:
    names = [scene.add() for _ in range(3)]
    scene.damage(names[1])

    code, text = scene.run("list", limit=2)

    lines = text.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["element", *names[:2]]
    assert "damaged" in lines[2]
    assert "the file is empty" in lines[2]


def test_list_of_an_empty_spool_is_an_empty_array(scene: Scene) -> None:
    assert scene.run_json("list") == []


def test_list_keeps_control_characters_from_the_terminal(scene: Scene) -> None:
    scene.add(Message({"messageClass": "\x1b[2Jevil"}, b""))

    _, text = scene.run("list")

    assert "\x1b" not in text
    assert "evil" in text


def test_show_finds_an_element_by_its_name_and_by_its_message_id(scene: Scene) -> None:
    first, second = metric_message(), metric_message(note="x: y")
    name = scene.add(first)
    scene.add(second)

    documents = scene.run_json("show", ids=[second.message_id, name])

    assert [document["message_id"] for document in documents] == [
        second.message_id,
        first.message_id,
    ]
    assert documents[0]["headers"]["note"] == "x: y"
    assert documents[1]["body"] == first.body.decode()


def test_show_prints_headers_and_body_of_an_element(scene: Scene) -> None:
    message = metric_message()
    name = scene.add(message)

    _, text = scene.run("show", ids=[name])

    assert f"samMessageId: {message.message_id}" in text
    assert text.endswith(message.body.decode())


def test_show_prints_a_binary_body_in_base64_too(scene: Scene) -> None:
    scene.add(Message({"samMessageId": "m1"}, b"\xff\0"))

    document = scene.run_json("show", ids=["m1"])

    assert document["body_base64"] == "/wA="


def test_show_reports_an_element_that_does_not_exist(scene: Scene) -> None:
    with pytest.raises(SpoolError, match=r"not in the spool .*: nobody") as missing:
        scene.run("show", ids=["nobody"])

    assert missing.value.exit_code == 66


def test_what_was_set_aside_is_listed_with_its_reason(scene: Scene) -> None:
    name = scene.set_aside()
    scene.add()

    _, row = scene.run_json("list")

    assert (row["element"], row["set_aside"], row["damage"]) == (name, True, "cut off")
    assert "aside" in scene.run("list")[1]
    code, text = scene.run("show", ids=[name])
    assert (code, "damage: cut off" in text) == (65, True)


def test_elements_are_dropped_by_name_and_by_message_id_wherever_they_are(scene: Scene) -> None:
    message = metric_message()
    twice = [scene.add(message), scene.add(message)]
    named, aside, kept = scene.add(), scene.set_aside(), scene.add()

    code, text = scene.run("drop", ids=[message.message_id or "", named, aside])

    assert code == 0
    assert [line.split()[1] for line in text.splitlines()] == [
        *(f"{n}:" for n in (*twice, named, aside))
    ]
    assert list(scene.queue.names()) == [kept]
    assert list(Path(f"{scene.queue.path}.bad").iterdir()) == []


def test_nothing_is_dropped_if_one_of_the_ids_does_not_exist(scene: Scene) -> None:
    name = scene.add()

    with pytest.raises(SpoolError, match=r"not in the spool .*: no-such-id") as error:
        scene.run("drop", ids=[name, "no-such-id"])

    assert error.value.exit_code == 66
    assert scene.queue.count() == 1


def test_an_element_that_another_process_is_sending_is_not_dropped(scene: Scene) -> None:
    sending, name = scene.add(), scene.add()
    scene.queue.lock(sending)

    with pytest.raises(SpoolError, match=f"another process is sending it: {sending}") as error:
        scene.run("drop", ids=[name, sending])

    assert error.value.exit_code == 75
    assert list(scene.queue.names()) == [sending]


def test_verify_finds_nothing_in_an_intact_spool(scene: Scene) -> None:
    name = scene.add()
    scene.queue.lock(name)
    scene.place(f"{name}1.tmp", seconds_old=10)

    assert scene.run("verify") == (0, f"{scene.queue.path}: no problem found\n")
    assert scene.run_json("verify") == []


def spoil(scene: Scene) -> dict[str, str]:
    """Cause every kind of problem; the problems by element name."""
    names = sorted(scene.add() for _ in range(6))
    directory = names[0].split("/")[0]
    scene.damage(names[0])
    scene.damage(names[1], b'{"body": "cut')
    (scene.queue.path / names[2]).chmod(0o666)
    scene.queue.lock(names[3])
    scene.place(f"{names[3]}.lck", seconds_old=700)
    scene.place(f"{names[4]}7.tmp", seconds_old=700)
    scene.place(f"{directory}/notes", seconds_old=0)
    (scene.queue.path / names[5]).unlink()
    (scene.queue.path / names[5]).symlink_to("/etc/passwd")
    (scene.queue.path / "00000000").symlink_to("/etc")
    (scene.queue.path / "0000003c").mkdir()
    scene.damage("0000003c/0000003c000000", serialise(metric_message()))
    (scene.queue.path / "0000003c").chmod(0o777)
    return {
        names[0]: "damaged",
        names[1]: "damaged",
        names[2]: "mode",
        f"{names[3]}.lck": "stale-lock",
        f"{names[4]}7.tmp": "leftover",
        f"{directory}/notes": "foreign",
        names[5]: "link",
        "00000000": "link",
        "0000003c": "mode",
    }


def test_verify_reports_every_problem_and_changes_nothing(scene: Scene) -> None:
    trouble = spoil(scene)
    before = sorted(scene.queue.path.rglob("*"))

    code, text = scene.run("verify")
    report = scene.run_json("verify")

    assert code == 65
    assert text.endswith(f"{len(trouble)} problems\n")
    assert {entry["name"]: entry["problem"] for entry in report} == trouble
    assert sorted(scene.queue.path.rglob("*")) == before


def test_repair_sets_damaged_elements_aside_and_leaves_other_problems(scene: Scene) -> None:
    trouble = spoil(scene)

    report = scene.run_json("repair")

    done = {entry["name"] for entry in report if entry["done"]}
    mendable = ("damaged", "stale-lock", "leftover")
    links = {name for name in trouble if trouble[name] == "link" and "/" in name}
    assert {entry["name"] for entry in report} == set(trouble)
    assert done == {name for name, kind in trouble.items() if kind in mendable} | links
    assert {entry["problem"] for entry in scene.run_json("verify")} == {"mode", "foreign", "link"}
    assert len(list(Path(f"{scene.queue.path}.bad").glob("*.reason"))) == 3


def test_repair_does_not_touch_a_damaged_element_that_is_locked(scene: Scene) -> None:
    name = scene.add()
    scene.damage(name)
    scene.queue.lock(name)

    code, text = scene.run("repair")

    assert code == 65
    assert "another process" in text
    assert scene.queue.count() == 1


def test_repair_of_an_intact_spool_exits_0(scene: Scene) -> None:
    scene.add()

    assert scene.run("repair") == (0, f"{scene.queue.path}: no problem found\n")


def test_status_reports_counts_and_limits(scene: Scene) -> None:
    name = scene.add()
    scene.add()
    scene.queue.lock(name)
    scene.set_aside()

    state = scene.run_json("status")

    assert state.pop("oldest").endswith("Z")
    assert state.pop("size_bytes") > 800
    assert state == {
        "path": str(scene.queue.path),
        "messages": 2,
        "max_messages": 100_000,
        "max_bytes": 1024**3,
        "when_full": "refuse",
        "locked": 1,
        "refusals": {},
        "quarantined": 1,
        "quarantined_bytes": 1,
        "dropped": 0,
        "copy": None,
        "copies": [],
    }


def test_list_and_status_name_the_brokers_for_which_an_element_is_too_large(scene: Scene) -> None:
    servlet = "activemq-rest+http://msg.example.org:8161/api/message"
    scene.config = scene.config._replace(brokers=(servlet, "stomp://msg.example.org"))
    scene.add()
    scene.add(Message(metric_message().headers, b"x" * 300_000))

    _, listed = scene.run("list")
    _, status = scene.run("status")

    assert [servlet in line for line in listed.splitlines()] == [False, False, True]
    assert "limit of 200000" in listed
    assert [line.split()[:4] for line in status.splitlines() if "http" in line] == [
        ["not", "for", f"{servlet}:", "1"]
    ]
    assert scene.run_json("status")["refusals"] == {servlet: 1}


def test_status_reports_the_total_number_of_dropped_messages(scene: Scene) -> None:
    full = PublisherConfig(
        state=scene.config.state, spool_max_messages=1, spool_when_full="drop-oldest"
    )
    for _ in range(3):
        BoundedSpool(scene.queue.path, full, full.shares_spool).add(metric_message())

    _, text = scene.run("status")

    assert scene.run_json("status")["dropped"] == 2
    assert "dropped      2\n" in text


def test_the_status_of_a_spool_that_does_not_exist_yet_is_empty(scene: Scene) -> None:
    code, text = scene.run("status")

    assert code == 0
    assert "messages     0 of 100000, refuse\n" in text


def test_a_drain_without_brokers_is_a_configuration_error(scene: Scene) -> None:
    with pytest.raises(ConfigError, match="no broker to drain to"):
        scene.run("drain")


def to_another_spool(scene: Scene) -> DirectoryQueue:
    target = DirectoryQueue(scene.queue.path.with_name("target"))
    scene.config = PublisherConfig(
        brokers=(f"spool://{target.path}",), spool=scene.queue.path, state=scene.config.state
    )
    return target


def test_drain_reports_the_sent_and_the_remaining_messages(scene: Scene) -> None:
    target = to_another_spool(scene)
    scene.queue.lock(scene.add())
    scene.add()

    report = scene.run_json("drain")

    assert report.pop("elapsed_s") < 30
    others = {"rejected": 0, "set_aside": 0, "inaccessible": 0, "copy": None, "copies": []}
    assert report == {"sent": 1, "left": 1, "locked": 1, **others}
    assert target.count() == 1


def test_a_drain_beside_others_says_that_they_have_the_rest_and_exits_75(scene: Scene) -> None:
    to_another_spool(scene)
    scene.queue.lock(scene.add())

    code, text = scene.run("drain")

    assert code == 75
    assert "1 left (1 locked by other processes" in text


def test_a_drain_that_sets_an_element_aside_exits_65(scene: Scene) -> None:
    to_another_spool(scene)
    scene.damage(scene.add())

    code, _ = scene.run("drain")

    assert code == 65


def test_a_drain_loop_ends_with_0_when_it_is_terminated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = to_another_spool(scene)
    scene.add()
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "sam_pipeline.publisher.delivery.drain.logger.info",
        lambda *_: os.kill(os.getpid(), signal.SIGTERM),
    )

    code, text = scene.run("drain", loop=True)

    assert code == 0
    assert "drained 1 message" in text
    assert target.count() == 1
    assert signal.getsignal(signal.SIGTERM) == handler
