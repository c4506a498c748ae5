"""What only a folder can do: die in the middle, fill up, lack rights or hard links."""

import errno
import fcntl
import itertools
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.errors import StorageError
from rowmill.storage import AlreadyThere, LocalStorage, NotThere
from rowmill.storage import files as files_module

HERE = Path(__file__).parent


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "out"))


def hidden(storage: LocalStorage) -> list[str]:
    return sorted(path.name for path in storage.root.rglob(".tmp-*"))


@pytest.mark.parametrize("act", ["create", "replace", "swap", "append"])
def test_killed_at_any_step_no_half_object_is_seen(tmp_path: Path, act: str) -> None:
    command = [sys.executable, str(HERE / "kill_points.py"), str(tmp_path), act]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    before = {"create": "absent", "replace": "old", "swap": "old", "append": "absent"}[act]
    may_be_seen = {before, "new", *(["beginning"] if act == "append" else [])}

    # The last one lived; the fewer steps the others got, the less they had done.
    assert [step["killed"] for step in steps[-2:]] == [True, False]
    assert {step["seen"] for step in steps} == may_be_seen
    assert steps[0]["seen"] == before
    assert steps[-1]["seen"] == "new"
    for step in steps:
        assert step["listed"] == ([] if step["seen"] == "absent" else ["deep/folder/name"])
        assert step["swept"] == step["left"]
        assert step["still_left"] == 0
    if act != "append":
        assert any(step["left"] for step in steps)


def test_a_finished_act_leaves_no_hidden_file(storage: LocalStorage) -> None:
    storage.create("a/1", b"1")
    storage.create("a/1", b"2")
    storage.replace("a/1", b"3")
    storage.swap("a/1", b"4", "another version")

    assert hidden(storage) == []
    assert storage.sweep() == 0


def test_sweep_leaves_what_a_living_writer_holds(storage: LocalStorage) -> None:
    storage.create("a", b"")
    writing = storage.root / ".tmp-1-1"
    fd = files_module.take_lock(writing, fcntl.LOCK_SH)
    assert fd is not None

    assert storage.sweep() == 0
    os.close(fd)
    assert storage.sweep() == 1
    assert hidden(storage) == []


def test_sweep_in_the_middle_of_a_create_takes_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[int] = []
    real = os.fsync

    def sweep_and_sync(fd: int) -> None:
        swept.append(storage.sweep())
        real(fd)

    monkeypatch.setattr(os, "fsync", sweep_and_sync)

    assert storage.create("a", b"1")
    assert set(swept) == {0}
    assert storage.read("a") == b"1"


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may hold a lock on a new file of the same name."""
    lock, real = tmp_path / "lock", fcntl.flock

    def lock_too_late(fd: int, mode: int) -> None:
        lock.unlink()
        lock.touch()
        real(fd, mode)

    monkeypatch.setattr(fcntl, "flock", lock_too_late)

    assert files_module.take_lock(lock, fcntl.LOCK_EX) is None


def test_without_hard_links_create_still_has_one_winner(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)

    assert storage.create("a", b"first")
    # Past the early look, as when both arrive at once.
    real, looks = os.path.lexists, itertools.count()
    monkeypatch.setattr(os.path, "lexists", lambda path: bool(next(looks)) and real(path))
    assert not storage.create("a", b"second")
    assert storage.read("a") == b"first"
    assert hidden(storage) == []


def test_a_folder_that_vanishes_under_a_writer_is_made_again(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another start probes the same new output and tidies up."""
    real_open, times = os.open, iter(range(3))

    def open_after_removal(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_EXCL and next(times, None) is not None and storage.root.exists():
            storage.root.rmdir()
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", open_after_removal)

    assert storage.create("a", b"1")
    assert storage.read("a") == b"1"


def test_a_file_in_the_way_of_a_folder_is_named(storage: LocalStorage) -> None:
    storage.create("a", b"")

    with pytest.raises(StorageError, match=r"out/a/b`: Not a directory"):
        storage.create("a/b", b"")
    storage.create("folder/x", b"")
    with pytest.raises(StorageError, match=r"Is a directory"):
        storage.replace("folder", b"")


def test_a_name_too_long_is_told(storage: LocalStorage) -> None:
    with pytest.raises(StorageError, match="File name too long"):
        storage.create("n" * 300, b"")

    assert hidden(storage) == []


def test_appended_bytes_are_visible_at_once(storage: LocalStorage) -> None:
    appender = storage.appender("segments/1")
    appender.write(b"one\n")
    appender.write(b"two\n")

    assert storage.read("segments/1") == b"one\ntwo\n"
    assert appender.size == 8
    appender.flush()
    appender.sync()
    appender.close()
    appender.close()


def test_an_old_file_is_never_appended_to(storage: LocalStorage) -> None:
    storage.appender("segments/1").close()

    with pytest.raises(AlreadyThere, match="exists already"):
        storage.appender("segments/1")


def test_a_closed_appender_takes_nothing(storage: LocalStorage) -> None:
    appender = storage.appender("a")
    appender.close()

    with pytest.raises(StorageError, match="Bad file descriptor"):
        appender.write(b"x")


@pytest.fixture
def small_files() -> Iterator[int]:
    """Let no file of this process grow over 64 KiB, as `ulimit -f` does."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, old[1]))
    yield 65536
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_the_file_size_limit_is_an_error_not_a_death(
    storage: LocalStorage, small_files: int
) -> None:
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    with pytest.raises(StorageError, match=r"out/big`: File too large"):
        storage.create("big", b"x" * (small_files + 1))

    assert storage.size("big") is None
    assert hidden(storage) == []


def test_a_write_that_does_not_fit_leaves_nothing_of_it(
    storage: LocalStorage, small_files: int
) -> None:
    appender = storage.appender("a")
    line = b"x" * 999 + b"\n"
    for _ in range(small_files // len(line)):
        appender.write(line)
    with pytest.raises(StorageError, match="File too large"):
        appender.write(line)

    content = storage.read("a")
    assert len(content) == appender.size == small_files // 1000 * 1000
    assert content.endswith(b"\n")


def test_an_appender_that_failed_stays_failed(storage: LocalStorage, small_files: int) -> None:
    """A later sync could succeed over lost bytes."""
    appender = storage.appender("a")
    with pytest.raises(StorageError, match="File too large"):
        appender.write(b"x" * (small_files + 1))

    with pytest.raises(StorageError, match="File too large"):
        appender.write(b"")
    with pytest.raises(StorageError, match="File too large"):
        appender.flush()
    with pytest.raises(StorageError, match="File too large"):
        appender.sync()
    assert appender.size == 0


def test_ulimit_of_the_shell_is_told_with_path_and_reason(tmp_path: Path) -> None:
    code = (
        "import sys; from rowmill.storage import open_storage;"
        "open_storage(sys.argv[1]).replace('big', b'x' * 3_000_000)"
    )
    command = f'ulimit -f 1024; exec "{sys.executable}" -c "{code}" "{tmp_path}/out"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"`{tmp_path}/out/big`: File too large" in done.stderr


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    mounted = (
        subprocess.run(command, capture_output=True, check=False) if os.geteuid() == 0 else None
    )
    if mounted is None or mounted.returncode:
        pytest.skip("no right to mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_told_and_leaves_whole_objects(tiny_disk: Path) -> None:
    storage = LocalStorage(str(tiny_disk / "out"))
    storage.create("old", b"old")
    appender = storage.appender("segment")

    for act in (
        lambda: storage.create("new", b"x" * 2_000_000),
        lambda: storage.replace("old", b"x" * 2_000_000),
        lambda: appender.write(b"x" * 2_000_000),
    ):
        with pytest.raises(StorageError, match=r"disk/out/.*No space left on device"):
            act()

    appender.close()
    assert storage.list("") == ["old", "segment"]
    assert storage.read("old") == b"old"
    assert storage.read("segment") == b""
    assert hidden(storage) == []
    storage.create("new", b"fits again")


def test_errors_survive_pickling(storage: LocalStorage) -> None:
    with pytest.raises(NotThere) as absent:
        storage.read("a")

    again = pickle.loads(pickle.dumps(absent.value))
    assert str(again) == str(absent.value)
    assert again.fields == absent.value.fields


def test_a_storage_is_the_same_folder_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("out")
    monkeypatch.chdir("/")

    storage.create("a", b"1")
    assert (tmp_path / "out" / "a").read_bytes() == b"1"
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"
