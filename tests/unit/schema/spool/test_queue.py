"""The directory queue on disk; and elements that are read in pieces, in little memory."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import stat
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import CLASS, MESSAGE_ID, Message
from sam_pipeline.schema.messages.refused import BAD_FRAME, KEPT_BYTES, TOO_LARGE, refusal_of
from sam_pipeline.schema.spool import directory as spool_directory
from sam_pipeline.schema.spool import disk
from sam_pipeline.schema.spool.element import parse, serialise
from sam_pipeline.schema.spool.inspection import elements_of
from sam_pipeline.schema.spool.large_element import (
    MAX_HEADER_CHARS,
    MAX_HEADERS,
    WHOLE_BYTES,
    read_in_pieces,
    read_limited,
)
from sam_pipeline.schema.spool.queue import DirectoryQueue, written_at
from tests.support.builders import metric_message

DAYS_S = 3 * 86400
OLD_S = 601
FIRST = "00000000/00000000000000"


@pytest.fixture
def queue(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    return directory


def files_of(queue: DirectoryQueue) -> list[str]:
    return sorted(path.name for path in queue.path.rglob("*") if not path.is_dir())


def element(queue: DirectoryQueue, content: bytes) -> str:
    """Write a file as another program would."""
    (queue.path / FIRST).parent.mkdir(parents=True, exist_ok=True)
    (queue.path / FIRST).write_bytes(content)
    return FIRST


def of_age(path: Path, seconds: float) -> None:
    os.utime(path, (0, time.time() - seconds))


def failing(code: int, real: Callable[..., object] | None = None, at: int = 1) -> Mock:
    """A system call that always fails or, if `real` is given, only at call number `at`."""
    error = OSError(code, os.strerror(code))
    if real is None:
        return Mock(side_effect=error)
    return Mock(wraps=real, side_effect=chain([DEFAULT] * (at - 1), [error], repeat(DEFAULT)))


def test_messages_are_read_back_in_order_even_if_the_clock_is_set_back(
    queue: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Message({"destination": os.fsdecode(b"/queue/\xff"), "a": "é"}, b"\xff\0")
    messages = [metric_message(), odd, *(metric_message() for _ in range(120))]
    real = time.time_ns

    names = [queue.add(message) for message in messages[:2]]
    monkeypatch.setattr(time, "time_ns", lambda: real() - DAYS_S * 10**9)
    names.append(queue.add(messages[2]))
    names += queue.store_all([serialise(message) for message in messages[3:]])

    assert names == list(queue.names())
    assert [queue.read(name) for name in names] == messages
    assert abs(written_at(names[0]).timestamp() - real() / 1e9) < 60


def test_an_element_is_locked_by_one_until_it_is_unlocked_or_removed_before_its_lock(
    queue: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = queue.add(metric_message())
    monkeypatch.setattr(os, "unlink", gone := Mock(wraps=os.unlink))

    assert (queue.lock(name), queue.lock(name)) == (True, False)
    queue.unlock(name)
    assert queue.lock(name)
    queue.remove(name)
    assert not queue.lock(name)
    assert (queue.count(), files_of(queue)) == (0, [])
    file = name.split("/")[1]
    assert [call.args[0] for call in gone.call_args_list] == [f"{file}.lck", file, f"{file}.lck"]


def test_only_locks_not_refreshed_for_ten_minutes_are_purged(queue: DirectoryQueue) -> None:
    name = queue.add(metric_message())
    lock, temporary = queue.path / f"{name}.lck", queue.path / f"{name}.tmp"
    of_age(queue.path / name, OLD_S)
    queue.lock(name)  # recent, even if the element is old
    temporary.touch()
    queue.purge()
    assert (lock.exists(), temporary.exists()) == (True, True)

    of_age(lock, OLD_S)
    queue.refresh(name)
    queue.purge()
    assert lock.exists()

    of_age(lock, OLD_S)
    of_age(temporary, 301)
    assert not queue.lock(name)  # which does not keep the lock of a dead process alive
    queue.purge()
    assert (lock.exists(), temporary.exists()) == (False, False)

    queue.lock(name)
    of_age(lock, -DAYS_S)  # before the clock was set back
    queue.purge()
    assert not lock.exists()
    assert queue.count() == 1


@pytest.mark.parametrize("rename", [os.rename, failing(errno.EXDEV)])
def test_a_damaged_element_is_moved_aside_with_its_reason(
    queue: DirectoryQueue, monkeypatch: pytest.MonkeyPatch, rename: object
) -> None:
    name = queue.add(metric_message())
    (queue.path / name).write_bytes(b'{"body": "cut')
    queue.lock(name)
    monkeypatch.setattr(os, "rename", rename)  # EXDEV: it is on another file system

    with pytest.raises(DamagedElement) as caught:
        queue.read(name)
    aside = queue.quarantine(name, str(caught.value))

    assert files_of(queue) == []
    assert aside.read_bytes() == b'{"body": "cut'
    assert name in aside.with_name(f"{aside.name}.reason").read_text()


def test_a_new_queue_is_private_and_durable_with_every_directory_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync_directory", lambda path: synced.append(path))

    name = DirectoryQueue(tmp_path / "a" / "b" / "spool").add(metric_message())

    parents = [tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "spool"]
    assert synced == [str(path) for path in parents]
    assert stat.S_IMODE(parents[-1].stat().st_mode) == 0o700
    assert stat.S_IMODE((parents[-1] / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO, None])
def test_a_created_link_counts_even_if_an_error_is_reported_and_a_name_in_use_is_skipped(
    queue: DirectoryQueue, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    message = metric_message()
    real, first = os.link, list[str]()

    def link(old: str, new: str, **at: int) -> None:
        is_first = not first
        first[:] = first or [new]
        if is_first and not code:  # another process takes the name
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY, dir_fd=at["dst_dir_fd"]))
        real(old, new, **at)
        if is_first and code:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    name = queue.add(message)

    file = name.split("/")[1]
    assert files_of(queue) == ([file] if code else [*first, file])
    assert first and queue.read(name) == message


ADVICE = {
    errno.ENOSPC: "no space or no inodes",
    errno.EIO: "file server failed",
    errno.EACCES: "owner and mode",
}


@pytest.mark.parametrize("code", ADVICE)
def test_a_refusal_has_size_path_reason_and_advice(
    queue: DirectoryQueue, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    message = metric_message()
    monkeypatch.setattr(os, "write", failing(code))

    with pytest.raises(SpoolError) as refusal:
        queue.add(message)

    assert f"{len(serialise(message))} bytes to the spool {queue.path}: " in str(refusal.value)
    assert str(refusal.value).count(ADVICE[code]) == 1
    assert refusal.value.exit_code == (77 if code == errno.EACCES else 74)
    assert files_of(queue) == []


def test_an_element_that_could_not_be_synced_is_discarded_and_a_batch_written_again(
    queue: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [serialise(metric_message()) for _ in range(5)]
    queue.store(contents[0])
    before, fsync = files_of(queue), os.fsync
    for which in (1, 2):  # of the file, of its directory
        monkeypatch.setattr(os, "fsync", failing(errno.EIO, fsync, which))
        with pytest.raises(SpoolError, match="Input/output error"):
            queue.add(metric_message())
        assert files_of(queue) == before
    monkeypatch.setattr(os, "fsync", failing(errno.EIO, fsync, 3))

    assert len(list(queue.store_all(contents[1:]))) == 4

    assert files_of(queue) == [name.split("/")[1] for name in queue.names()]
    assert [(queue.path / name).read_bytes() for name in queue.names()] == contents


def test_a_queue_or_quarantine_that_is_a_symbolic_link_is_refused(
    queue: DirectoryQueue, elsewhere: Path, tmp_path: Path
) -> None:
    link = DirectoryQueue(tmp_path / "link")
    link.path.symlink_to(elsewhere)
    uses: list[Callable[[], object]] = [lambda: link.add(metric_message()), link.purge]
    uses += [lambda: list(link.names()), lambda: list(link.walk())]
    name = queue.add(metric_message())
    queue.lock(name)
    queue.path.with_name("spool.bad").symlink_to(elsewhere)

    for use in (*uses, lambda: queue.quarantine(name, "damaged")):
        with pytest.raises(SpoolError, match="is a symbolic link") as refusal:
            use()
        assert refusal.value.exit_code == 77
    assert list(elsewhere.iterdir()) == []
    assert queue.count() == 1


def test_a_directory_that_is_a_symbolic_link_is_never_written_read_or_purged(
    queue: DirectoryQueue, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = queue.add(metric_message())
    (elsewhere / "0123456789abcd").write_bytes(serialise(metric_message()))
    (elsewhere / "0123456789abcd.tmp").touch()
    os.utime(elsewhere / "0123456789abcd.tmp", (0, 0))
    monkeypatch.setattr(time, "time_ns", lambda: (2**32 - 1) * 10**9)
    monkeypatch.setattr(spool_directory, "_last_us", 0)  # the clock of a new process
    (queue.path / f"{(2**32 - 1) // 60 * 60:08x}").symlink_to(elsewhere)

    with pytest.raises(SpoolError, match="is a symbolic link or a file, remove it"):
        queue.add(metric_message())
    queue.purge()

    assert list(queue.names()) == [own]
    assert {path.name for path in elsewhere.iterdir()} == {"0123456789abcd", "0123456789abcd.tmp"}


def test_no_symbolic_link_is_an_element_or_a_lock(queue: DirectoryQueue, tmp_path: Path) -> None:
    locked_by_link = queue.add(metric_message())
    directory = (queue.path / locked_by_link).parent
    secret = tmp_path / "secret"
    secret.write_bytes(serialise(metric_message()))
    os.utime(secret, (0, 0))
    (directory / "00000000000000").symlink_to(secret)
    os.mkfifo(directory / "00000000000001")  # which does not block
    (directory / "00000000000002").mkdir()
    (queue.path / f"{locked_by_link}.lck").symlink_to(secret)

    for name in list(queue.names())[:3]:
        assert queue.lock(name)
        with pytest.raises(DamagedElement, match=r"a symbolic link|it is not a regular file"):
            queue.read(name)
        assert queue.quarantine(name, "no file").is_symlink() == name.endswith("0")
    assert not queue.lock(locked_by_link)
    queue.unlock(locked_by_link)

    assert queue.lock(locked_by_link)
    assert (secret.stat().st_nlink, secret.stat().st_mtime) == (1, 0)
    assert queue.count() == len(list(queue.path.rglob("*.lck"))) == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_shared_files_have_their_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    queue = DirectoryQueue(tmp_path / "spool", shared=True)
    previous = os.umask(umask)
    try:
        damaged, element = queue.add(metric_message()), queue.add(metric_message())
        queue.lock(damaged)
        aside = queue.quarantine(damaged, "cut off")
    finally:
        os.umask(previous)

    directories = [queue.path, (queue.path / element).parent, aside.parent]
    files = [queue.path / element, aside, aside.with_name(f"{aside.name}.reason")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o2770}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}
    assert {path.name for path in tmp_path.iterdir()} == {"spool", "spool.bad"}


@pytest.mark.parametrize(
    ("mode", "accepted"),
    [(0o2770, True), (0o2775, True), (0o0770, False), (0o2750, False), (0o2772, False)],
)
def test_a_directory_of_another_user_is_written_to_if_a_group_of_ours_shares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, accepted: bool
) -> None:
    def of_4711(path: str, real: Callable[..., os.stat_result] = os.lstat) -> os.stat_result:
        status = real(path)
        return os.stat_result((*status[:4], 4711, *status[5:]))

    def outcome(shared: bool) -> bool:
        try:
            disk.refuse_unsafe(str(tmp_path), shared=shared)
        except SpoolError as error:
            assert re.search("belongs to another user|world-writable", str(error))
            assert error.exit_code == 77
            return False
        return True

    tmp_path.chmod(mode)
    gid = tmp_path.stat().st_gid
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(os, "getegid", lambda: -1)
    monkeypatch.setattr(os, "lstat", of_4711)

    for groups, ours in (([gid], True), ([gid + 1], False)):
        monkeypatch.setattr(os, "getgroups", lambda groups=groups: groups)
        assert (outcome(shared=True), outcome(shared=False)) == (accepted and ours, False)


def test_a_directory_writable_by_all_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SpoolError, match="chmod o-w"):
        DirectoryQueue(tmp_path).add(metric_message())
    assert list(tmp_path.iterdir()) == []
    for mode in (0o1777, 0o770):
        tmp_path.chmod(mode)
        DirectoryQueue(tmp_path).add(metric_message())


def test_elements_are_found_by_the_ids_of_their_messages(queue: DirectoryQueue) -> None:
    assert [*elements_of(queue, {"a"}, 0)] == []
    messages = [metric_message() for _ in range(3)]
    names = [queue.add(message) for message in messages]
    first, second, third = (message.message_id for message in messages)
    queue.lock(names[1])
    damaged, aside = queue.store(b'{"header": {"samMessageId": "id-1"'), queue.store(b"id-2 {")
    queue.lock(aside)
    aside_file = queue.quarantine(aside, "not JSON")

    found = list(elements_of(queue, {first, second, "id-1", "id-2"}, 0))

    paths = [*(f"{queue.path}/{name}" for name in (*names[:2], damaged)), str(aside_file)]
    assert [(item.message_id, item.file, item.is_damaged) for item in found] == [
        *zip((first, second, "id-1", "id-2"), paths, (False, False, True, True), strict=True)
    ]
    assert found[3].reason == "not JSON"
    # What is older than the message is not read, and a foreign one has the id of its reader.
    assert [*elements_of(queue, {third}, time.time() + 100)] == []
    queue.add(Message({}, b"a: b\nEOT\n"))
    wanted = Message({CLASS: "diskUsage"}, b"a: b\nEOT\n").message_id
    stamped = Stamp({CLASS: "diskUsage"}).stamped
    assert [item.message_id for item in elements_of(queue, {wanted}, 0, stamped)] == [wanted]


MB = 1_000_000
LIMIT = 4 * MB
HEADERS = {CLASS: "metricOutput", MESSAGE_ID: "m-1"}

texts = st.text(st.characters(), max_size=40) | st.text(
    '\\"\0\n\ud83d\ude00\U0001f600a', max_size=40
)
encodings = st.sampled_from(["", "utf8", "base64", "zlib+base64"])


def element_of(body: bytes, encoding: str = "", headers: Mapping[str, object] = HEADERS) -> bytes:
    """An element in the order of another writer: the encoding comes first."""
    if "zlib" in encoding:
        body = zlib.compress(body)
    if "base64" in encoding:
        body = base64.encodebytes(body)
    text = body.decode("utf-8", "surrogatepass")
    return json.dumps({"encoding": encoding, "body": text, "header": headers}).encode()


def cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def in_pieces(content: bytes, size: int = 1000, limit: int = LIMIT) -> Message:
    return read_in_pieces(lambda: cut(content, size), limit)


def read_whole(directory: Path, content: bytes, limit: int = LIMIT) -> Message:
    queue = DirectoryQueue(directory / "spool")
    message, _ = read_limited(queue, queue.store(content), limit)
    return message


@given(
    st.dictionaries(texts, texts | st.none(), max_size=3),
    texts,
    encodings,
    st.booleans(),
    st.data(),
)
@example({}, "\U0001f600" * 3, "", True, None)
def test_an_element_is_the_same_message_in_whatever_pieces_it_is_read(
    headers: dict[str, str | None], text: str, encoding: str, escaped: bool, data: st.DataObject
) -> None:
    body = text.encode("utf-8", "surrogatepass")
    content = element_of(body, encoding, headers)
    if not escaped:
        parts = json.loads(content)
        content = json.dumps(parts, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    size = data.draw(st.integers(1, len(content))) if data else 7

    assert in_pieces(content, size) == parse(content)


NO_MESSAGES = (
    *(b"[1]", b'{"body": 1}', b'{"body": null}', b'{"header": {"a": 1}}', b'{"header": {"a": {}}}'),
    *(b'{"header": []}', b'{"encoding": "rot13", "body": "a"}', b'{"encoding": 1}'),
    *(b'{"body": "a"} {}', b'{"body": "a",}', b'{"body": "\\x"}', b'{"body": "\n"}'),
    *(b'{"body": "\\ud8"}', b'{"body": "!", "encoding": "base64"}', b'{"body": "\xff"}'),
    *(b'{"body": "AAAA", "encoding": "base64+zlib"}', b'{"more": ' + b"[" * 100_000),
    b'{"body": "eJxLTEoGAAJN", "encoding": "base64+zlib"}',  # of b"abc", without its last bytes
)


def test_content_that_is_not_a_whole_message_is_refused_also_in_pieces() -> None:
    for content in NO_MESSAGES:
        for reading in (parse, in_pieces):
            with pytest.raises(ValueError, match=r"\w"):
                reading(content)
    whole = element_of(b"a\nb", headers={"name": "\u00e9\n"})
    for end in range(1, 40):
        with pytest.raises(ValueError, match=r"\w"):
            in_pieces(whole[:-end])
    unknown_keys = b'{"more": {"a": [1, NaN]}, "body": "b", "text": true, "priority": 4}'
    assert in_pieces(unknown_keys, 1) == Message({}, b"b")


@pytest.mark.parametrize("name", ["lz4", "snappy"])
def test_another_compression_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        parse(element_of(b"a").replace(b'"encoding": ""', f'"encoding": "base64+{name}"'.encode()))


@pytest.mark.parametrize("encoding", ["", "base64", "base64+zlib"])
@pytest.mark.parametrize("spare", [1, 0, -1])
def test_the_limit_is_that_of_the_body_itself(tmp_path: Path, encoding: str, spare: int) -> None:
    body = b'"' * (WHOLE_BYTES - spare)

    message = read_whole(tmp_path, element_of(body, encoding), limit=WHOLE_BYTES)

    refusal = refusal_of(message)
    assert (message.message_id, message.message_class) == ("m-1", "metricOutput")
    assert message.body == (body if spare >= 0 else body[:KEPT_BYTES])
    assert (refusal and refusal.reason) == (None if spare >= 0 else TOO_LARGE)
    assert not refusal or hashlib.sha256(body).hexdigest() in refusal.text


@pytest.mark.parametrize("encoding", ["", "base64", "base64+zlib"])
def test_a_large_body_is_never_in_memory(tmp_path: Path, encoding: str) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.store(element_of(b"ab\n\0" * 3 * MB, encoding))
    tracemalloc.start()
    try:
        message, _ = read_limited(queue, name, MB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    refusal = refusal_of(message)
    assert refusal and refusal.text.startswith(f"{12 * MB} bytes")
    assert peak < 6 * MB


def test_headers_above_their_limit_are_a_bad_frame_with_those_that_matter(tmp_path: Path) -> None:
    many = {f"header-{number}": "" for number in range(1000)}
    headers = {**many, **HEADERS, "long": "x" * MAX_HEADER_CHARS}

    message = read_whole(tmp_path, element_of(b"body", headers=headers))

    refusal = refusal_of(message)
    assert refusal and refusal.reason == BAD_FRAME
    assert (message.message_id, message.message_class) == ("m-1", "metricOutput")
    assert message.body == b"body"
    assert sum(map(len, message.headers.values())) < 1000
    # More headers than any message has are not read.
    most = element_of(b"", headers={str(number): "" for number in range(MAX_HEADERS + 1)})
    with pytest.raises(ValueError, match=f"more than {MAX_HEADERS} headers"):
        in_pieces(most, MB)


def test_a_wait_for_changes_ends_with_a_new_element_or_a_stop(tmp_path: Path) -> None:
    queue, stop = DirectoryQueue(tmp_path / "q"), threading.Event()
    queue.add(metric_message())
    for directory in (tmp_path / "q").iterdir():
        os.utime(directory, (0, 0))
    before = queue.change_times()

    queue.add(metric_message())
    queue.wait_for_change(before, stop, timeout_s=3600)
    stop.set()
    queue.wait_for_change(queue.change_times(), stop, timeout_s=3600)

    assert queue.change_times() != before
