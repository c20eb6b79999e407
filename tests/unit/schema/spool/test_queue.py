"""The directory queue on disk."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool import disk
from sam_pipeline.schema.spool import queue as queue_module
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue, written_at
from tests.support.builders import metric_message

OLD_S = 601


def files_of(queue: DirectoryQueue) -> list[str]:
    return sorted(path.name for path in queue.path.rglob("*") if not path.is_dir())


def test_what_was_added_is_read_back_oldest_first(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    messages = [metric_message(), metric_message(), Message({"a": "é"}, b"\xff\0")]

    for message in messages:
        queue.add(message)

    assert [queue.read(name) for name in queue.names()] == messages


def test_an_element_can_be_locked_once_until_it_is_unlocked(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())

    assert queue.lock(name)
    assert not queue.lock(name)
    queue.unlock(name)
    assert queue.lock(name)


def test_a_removed_element_is_gone_with_its_lock(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)

    queue.remove(name)

    assert queue.count() == 0
    assert not queue.lock(name)
    assert not list(tmp_path.rglob("*.lck"))


def test_an_element_is_removed_before_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)
    element, gone = name.split("/")[1], []
    monkeypatch.setattr(os, "unlink", lambda name, **_: gone.append(name))

    queue.remove(name)

    assert gone == [element, f"{element}.lck"]


def test_a_queue_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "none")

    queue.purge()

    assert queue.count() == 0
    assert not queue.path.exists()


def test_old_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)
    lock, temporary = tmp_path / f"{name}.lck", tmp_path / f"{name}.tmp"
    temporary.touch()

    queue.purge()
    fresh = lock.exists(), temporary.exists()
    os.utime(lock, (0, time.time() - 601))
    os.utime(temporary, (0, time.time() - 301))
    queue.purge()

    assert fresh == (True, True)
    assert (lock.exists(), temporary.exists()) == (False, False)
    assert queue.count() == 1


def test_empty_directories_are_removed_except_the_newest(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    for name in ("00000000", "0000003c", "00000078"):
        (tmp_path / name).mkdir()

    queue.purge()

    assert [path.name for path in tmp_path.iterdir()] == ["00000078"]


def test_a_damaged_element_is_moved_aside_with_its_reason(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.add(metric_message())
    (queue.path / name).write_bytes(b'{"body": "cut')
    queue.lock(name)

    with pytest.raises(DamagedElement) as caught:
        queue.read(name)
    aside = queue.quarantine(name, str(caught.value))

    assert queue.count() == 0
    assert aside.read_bytes() == b'{"body": "cut'
    assert name in aside.with_name(f"{aside.name}.reason").read_text()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"body": 1}', b'{"header": {"a": 1}}'])
def test_an_element_without_a_message_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "00000000").mkdir()
    (tmp_path / "00000000" / "00000000000000").write_bytes(content)

    with pytest.raises(DamagedElement):
        DirectoryQueue(tmp_path).read("00000000/00000000000000")


@pytest.mark.parametrize("encoding", ["base64", "base64+zlib", "utf8+base64+zlib", "utf8"])
def test_elements_of_other_writers_are_read(tmp_path: Path, encoding: str) -> None:
    body = "caf\u00e9".encode()
    packed = zlib.compress(body) if "zlib" in encoding else body
    text = base64.b64encode(packed).decode() if "base64" in encoding else packed.decode()
    element = {"header": {"x": "y"}, "body": text, "text": "utf8" in encoding, "encoding": encoding}
    (tmp_path / "00000000").mkdir()
    (tmp_path / "00000000" / "00000000000000").write_text(json.dumps(element))

    message = DirectoryQueue(tmp_path).read("00000000/00000000000000")

    assert message == Message({"x": "y"}, body)


def test_a_header_without_a_value_is_absent(tmp_path: Path) -> None:
    (tmp_path / "00000000").mkdir()
    (tmp_path / "00000000" / "00000000000000").write_text('{"header": {"x": "y", "z": null}}')

    message = DirectoryQueue(tmp_path).read("00000000/00000000000000")

    assert message == Message({"x": "y"}, b"")


def test_other_names_are_ignored(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    (tmp_path / "README").touch()
    (tmp_path / name.split("/")[0] / "notes.txt").touch()

    assert list(queue.names()) == [name]


def test_the_name_of_an_element_holds_the_time_it_was_written(tmp_path: Path) -> None:
    name = DirectoryQueue(tmp_path).add(metric_message())

    assert abs(written_at(name).timestamp() - time.time()) < 60


def test_a_spool_that_cannot_be_written_is_reported_with_path_and_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        SpoolError, match=r"cannot write 4.. bytes to the spool .*/spool: Not a directory"
    ):
        DirectoryQueue(tmp_path / "file" / "spool").add(metric_message())


def test_many_are_stored_in_their_order(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    messages = [metric_message() for _ in range(120)]

    names = list(queue.store_all([serialise(message) for message in messages]))

    assert names == list(queue.names())
    assert [queue.read(name) for name in names] == messages


def test_a_clock_that_is_set_back_by_days_keeps_the_order_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    before = [metric_message() for _ in range(3)]
    after = [metric_message() for _ in range(3)]
    real = time.time_ns

    for message in before:
        queue.add(message)
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3 * 86400 * 10**9)
    for message in after:
        queue.add(message)

    assert [queue.read(name) for name in queue.names()] == before + after


def test_a_new_queue_is_durable_with_every_directory_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync_directory", lambda path: synced.append(path))

    DirectoryQueue(tmp_path / "a" / "b" / "spool").add(metric_message())

    parents = [tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "spool"]
    assert synced == [str(path) for path in parents]
    assert stat.S_IMODE((tmp_path / "a" / "b" / "spool").stat().st_mode) == 0o700


def test_a_directory_removed_by_another_process_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    real, swept = os.open, []

    def sweeping(path: str, flags: int, *arguments: int, **at: int) -> int:
        if "dir_fd" in at and not swept:
            swept.append(path)
            next(queue.path.iterdir()).rmdir()
        return real(path, flags, *arguments, **at)

    monkeypatch.setattr(os, "open", sweeping)
    name = queue.add(metric_message())

    assert swept
    assert list(queue.names()) == [name]


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO])
def test_a_created_link_counts_even_if_the_file_server_reports_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    queue, message = DirectoryQueue(tmp_path / "spool"), metric_message()
    real, attempts = os.link, []

    def link(old: str, new: str, **at: int | bool) -> None:
        real(old, new, **at)  # type: ignore[arg-type]
        if not attempts:
            attempts.append(new)
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    name = queue.add(message)

    assert files_of(queue) == [name.split("/")[1]] == attempts
    assert queue.read(name) == message


def test_a_name_in_use_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    real, taken = os.link, []

    def link(old: str, new: str, **at: int) -> None:
        if not taken:
            taken.append(new)
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY, dir_fd=at["dst_dir_fd"]))
        real(old, new, **at)

    monkeypatch.setattr(os, "link", link)
    name = queue.add(metric_message())

    assert files_of(queue) == [*taken, name.split("/")[1]]


@pytest.mark.parametrize(
    ("code", "stem", "exit_code"),
    [
        (errno.ENOSPC, "no space or no inodes are left: free some", 74),
        (errno.EDQUOT, "your quota is used up", 74),
        (errno.ESTALE, "the file server lost this export: mount it again", 74),
        (errno.EIO, "the disk or file server failed", 74),
        (errno.EROFS, "mount it writable", 74),
        (errno.EACCES, "check owner and mode", 77),
    ],
)
def test_a_refusal_has_size_path_reason_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, stem: str, exit_code: int
) -> None:
    queue, message = DirectoryQueue(tmp_path / "spool"), metric_message()
    monkeypatch.setattr(os, "write", _failing(code))

    with pytest.raises(SpoolError) as refusal:
        queue.add(message)

    size = len(serialise(message))
    assert f"cannot write {size} bytes to the spool {queue.path}: " in str(refusal.value)
    assert stem in str(refusal.value)
    assert refusal.value.exit_code == exit_code
    assert files_of(queue) == []


@pytest.mark.parametrize("which", [1, 2])
def test_an_element_that_could_not_be_synced_is_discarded_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    queue.add(metric_message())
    before = files_of(queue)
    monkeypatch.setattr(os, "fsync", _failing(errno.EIO, os.fsync, which))

    with pytest.raises(SpoolError, match="Input/output error"):
        queue.add(metric_message())

    assert files_of(queue) == before


def test_a_batch_that_could_not_be_synced_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    contents = [serialise(metric_message()) for _ in range(5)]
    queue.store(contents[0])
    monkeypatch.setattr(os, "fsync", _failing(errno.EIO, os.fsync, 3))

    names = list(queue.store_all(contents[1:]))

    assert len(names) == 4
    assert files_of(queue) == [name.split("/")[1] for name in queue.names()]
    assert [(queue.path / name).read_bytes() for name in queue.names()] == contents


def test_a_new_lock_is_recent_even_if_the_element_is_old(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    os.utime(tmp_path / name, (0, time.time() - OLD_S))

    queue.lock(name)
    queue.purge()

    assert not queue.lock(name)


def test_trying_to_lock_does_not_keep_the_lock_of_a_dead_process_alive(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)
    os.utime(tmp_path / f"{name}.lck", (0, time.time() - OLD_S))

    tried = queue.lock(name)
    queue.purge()

    assert not tried
    assert queue.lock(name)


def test_a_lock_that_is_refreshed_does_not_expire(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)
    os.utime(tmp_path / f"{name}.lck", (0, time.time() - OLD_S))

    queue.refresh(name)
    queue.purge()

    assert not queue.lock(name)


def test_a_lock_from_before_the_clock_was_set_back_expires(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)
    os.utime(tmp_path / f"{name}.lck", (0, time.time() + 3 * 86400))

    queue.purge()

    assert queue.lock(name)


@pytest.mark.parametrize(
    "use",
    [
        lambda queue: queue.add(metric_message()),
        lambda queue: list(queue.names()),
        lambda queue: list(queue.walk()),
        lambda queue: queue.purge(),
    ],
)
def test_a_queue_that_is_a_symbolic_link_is_refused(
    tmp_path: Path, use: Callable[[DirectoryQueue], object]
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    (tmp_path / "elsewhere").mkdir()
    queue.path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SpoolError, match="is a symbolic link") as refusal:
        use(queue)

    assert refusal.value.exit_code == 77
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_that_is_a_symbolic_link_is_never_written_read_or_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    own = queue.add(metric_message())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0123456789abcd").write_bytes(serialise(metric_message()))
    leftover = elsewhere / "0123456789abcd.tmp"
    leftover.touch()
    os.utime(leftover, (0, 0))
    monkeypatch.setattr(time, "time_ns", lambda: (2**32 - 1) * 10**9)
    (queue.path / f"{(2**32 - 1) // 60 * 60:08x}").symlink_to(elsewhere)

    with pytest.raises(SpoolError, match="is a symbolic link or a file, remove it"):
        _add_like_a_new_process(queue)
    queue.purge()

    assert list(queue.names()) == [own]
    assert sorted(path.name for path in elsewhere.iterdir()) == [
        "0123456789abcd",
        "0123456789abcd.tmp",
    ]


def test_an_element_that_is_a_symbolic_link_is_not_read_but_set_aside(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    queue.add(metric_message())
    secret = tmp_path / "secret"
    secret.write_bytes(serialise(metric_message()))
    name = f"{next(queue.names()).split('/')[0]}/00000000000000"
    (queue.path / name).symlink_to(secret)

    locked = queue.lock(name)
    with pytest.raises(DamagedElement, match="a symbolic link"):
        queue.read(name)
    aside = queue.quarantine(name, "a link")

    assert locked
    assert aside.is_symlink()
    assert secret.stat().st_nlink == 1
    assert queue.count() == 1


def test_a_lock_that_is_a_symbolic_link_locks_and_its_target_is_not_touched(
    tmp_path: Path,
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.add(metric_message())
    target = tmp_path / "target"
    target.touch()
    os.utime(target, (0, 0))
    (queue.path / f"{name}.lck").symlink_to(target)

    locked = queue.lock(name)
    queue.unlock(name)

    assert not locked
    assert target.stat().st_mtime == 0
    assert queue.lock(name)


def test_a_quarantine_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.add(metric_message())
    queue.lock(name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "spool.bad").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SpoolError, match="is a symbolic link"):
        queue.quarantine(name, "damaged")

    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert queue.count() == 1


def test_a_quarantine_on_another_file_system_gets_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.add(metric_message())
    (queue.path / name).write_bytes(b"{")
    queue.lock(name)
    monkeypatch.setattr(os, "rename", _failing(errno.EXDEV))

    aside = queue.quarantine(name, "damaged")

    assert aside.read_bytes() == b"{"
    assert files_of(queue) == []


def test_a_directory_of_another_user_is_read_but_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    if os.geteuid() == 0:
        os.chown(tmp_path, 4711, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4712)

    with pytest.raises(SpoolError, match="belongs to another user") as refusal:
        queue.add(metric_message())

    assert refusal.value.exit_code == 77
    assert list(queue.names()) == [name]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_a_group_shares_has_its_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
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
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o660}
    assert {path.name for path in tmp_path.iterdir()} == {"spool", "spool.bad"}


@pytest.mark.parametrize(
    ("mode", "group", "accepted"),
    [
        (0o2770, "ours", True),
        (0o2775, "ours", True),
        (0o2770, "other", False),
        (0o0770, "ours", False),
        (0o2750, "ours", False),
        (0o2772, "ours", False),
    ],
)
def test_a_directory_of_another_user_is_written_to_if_a_group_of_ours_shares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: str, accepted: bool
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(os, "getegid", lambda: -1)
    gid = tmp_path.stat().st_gid
    monkeypatch.setattr(os, "getgroups", lambda: [gid if group == "ours" else gid + 1])
    monkeypatch.setattr(os, "lstat", lambda path, original=os.lstat: of_user(original(path), 4711))

    with nullcontext() if accepted else pytest.raises(SpoolError) as refusal:
        disk.refuse_unsafe(str(tmp_path), shared=True)
    with pytest.raises(SpoolError, match=r"belongs to another user|world-writable"):
        disk.refuse_unsafe(str(tmp_path))

    assert accepted or refusal.value.exit_code == 77


def of_user(status: os.stat_result, uid: int) -> os.stat_result:
    return os.stat_result((*status[:4], uid, *status[5:]))


def test_a_directory_that_another_account_made_this_minute_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    theirs = queue.add(metric_message()).split("/")[0]
    open_directory = queue_module.open_directory

    def refuse(path: str) -> int:
        if path.endswith(theirs):
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_directory(path)

    monkeypatch.setattr(queue_module, "open_directory", refuse)

    ours = queue.add(metric_message())

    assert ours > theirs
    assert not ours.startswith(theirs)


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o770, False)])
def test_a_directory_in_which_everybody_may_remove_is_refused(
    tmp_path: Path, mode: int, refused: bool
) -> None:
    tmp_path.chmod(mode)
    queue = DirectoryQueue(tmp_path)

    if refused:
        with pytest.raises(SpoolError, match="chmod o-w, or name a directory below it"):
            queue.add(metric_message())
    else:
        queue.add(metric_message())

    assert (list(tmp_path.iterdir()) == []) == refused


def test_a_pipe_or_directory_in_place_of_an_element_does_not_block(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    directory = queue.path / queue.add(metric_message()).split("/")[0]
    os.mkfifo(directory / "00000000000000")
    (directory / "00000000000001").mkdir()

    for name in list(queue.names())[:2]:
        assert queue.lock(name)
        with pytest.raises(DamagedElement, match="it is not a regular file"):
            queue.read(name)
        queue.quarantine(name, "no file")

    assert queue.count() == 1
    assert not list(queue.path.rglob("*.lck"))


@pytest.mark.parametrize("encoding", ["lz4+base64", "rot13"])
def test_an_encoding_that_is_not_known_is_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "00000000").mkdir()
    element = {"body": "eA==", "encoding": encoding}
    (tmp_path / "00000000" / "00000000000000").write_text(json.dumps(element))

    with pytest.raises(DamagedElement, match=f"unknown encoding {encoding.split('+')[0]}"):
        DirectoryQueue(tmp_path).read("00000000/00000000000000")


def test_a_header_that_is_not_utf8_is_preserved(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    message = Message({"destination": os.fsdecode(b"/queue/\xff")}, b"")

    assert queue.read(queue.add(message)) == message


def test_whether_there_are_elements_is_found_without_following_links(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    empty = queue.has_elements()
    name = queue.add(metric_message())
    filled = queue.has_elements()
    (queue.path / name).rename(tmp_path / "00000000000000")
    (queue.path / "00000000").symlink_to(tmp_path)

    assert (empty, filled, queue.has_elements()) == (False, True, False)


def _failing(code: int, real: Callable[..., object] | None = None, at: int = 1) -> object:
    """A system call that always fails or, if `real` is given, only at call number `at`."""
    calls = 0

    def call(*arguments: object, **keywords: object) -> object:
        nonlocal calls
        calls += 1
        if real is not None and calls != at:
            return real(*arguments, **keywords)
        raise OSError(code, os.strerror(code))

    return call


def _add_like_a_new_process(queue: DirectoryQueue) -> None:
    """Add a message with a fresh clock, like a new process, and restore the clock of the tests."""
    from sam_pipeline.schema.spool import directory as spool_directory

    before = spool_directory._last_us
    spool_directory._last_us = 0
    try:
        queue.add(metric_message())
    finally:
        spool_directory._last_us = before
