"""A place that cannot be used is found before the work, and stays as it was."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import obstore.exceptions
import obstore.store
import pytest

from rowmill.errors import BadOutput, StorageError
from rowmill.storage import ObjectStorage, open_storage, probe


def tree(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(p), p.lstat().st_mtime_ns) for p in folder.rglob("*"))


def test_a_new_folder_is_tried_and_taken_away_again(tmp_path: Path) -> None:
    probe(open_storage(str(tmp_path / "new" / "deep" / "out")))

    assert list(tmp_path.iterdir()) == []


def test_an_old_folder_keeps_what_it_had(tmp_path: Path) -> None:
    tmp_path.joinpath("mine").write_text("x")
    probe(open_storage(str(tmp_path)))

    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("input.jsonl", "Not a directory"),
        ("input.jsonl/out", "Not a directory"),
        ("sub/../input.jsonl", "Not a directory"),
        ("symlink", "Not a directory"),
        ("hardlink", "Not a directory"),
        ("n" * 300, "File name too long"),
        ("new/" + "n" * 300, "File name too long"),
        ("/dev/full", "Not a directory"),
        ("/proc/nowhere/out", "No such file or directory"),
    ],
)
def test_a_place_that_is_no_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("input.jsonl").write_text("{}\n")
    Path("sub").mkdir()
    Path("symlink").symlink_to("input.jsonl")
    os.link("input.jsonl", "hardlink")
    before = tree(tmp_path)

    with pytest.raises(BadOutput) as refusal:
        probe(open_storage(output))

    assert f"`{output}`" in str(refusal.value)
    assert reason in str(refusal.value)
    assert tree(tmp_path) == before
    assert Path("input.jsonl").read_text() == "{}\n"


@pytest.fixture
def read_only_mount(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)]
    mounted = (
        subprocess.run(command, capture_output=True, check=False) if os.geteuid() == 0 else None
    )
    if mounted is None or mounted.returncode:
        pytest.skip("no right to mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_mount_is_refused(read_only_mount: Path) -> None:
    with pytest.raises(BadOutput, match="Read-only file system"):
        probe(open_storage(str(read_only_mount / "out")))


def test_a_folder_without_write_bit_is_refused(tmp_path: Path) -> None:
    """In a child, as a normal user: root may write anywhere."""
    locked = tmp_path / "ro_dir"
    locked.mkdir()
    code = f"""
import os
from rowmill.errors import BadOutput
from rowmill.storage import open_storage, probe
storage = open_storage({str(locked / "out")!r})
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
try:
    probe(storage)
except BadOutput as error:
    raise SystemExit(str(error))
"""
    # Folders above must let others pass.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    locked.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "ro_dir/out` cannot be written: Permission denied" in done.stderr
    assert list(locked.iterdir()) == []


class Careless(ObjectStorage):
    """A store that takes conditions and forgets them, as some servers do."""

    def create(self, name: str, content: bytes, *, durable: bool = True) -> bool:
        self.replace(name, content)
        return True


class Late(ObjectStorage):
    """A store whose compare-and-swap compares nothing."""

    def swap(
        self, name: str, content: bytes, version: str, *, durable: bool = True
    ) -> str | None:
        self.replace(name, content)
        return version


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Careless, "create-only wrote over"), (Late, "compare-and-swap wrote over")],
)
def test_a_store_that_forgets_conditions_is_refused(
    kind: type[ObjectStorage], what: str
) -> None:
    storage = kind("memory://forgetful", obstore.store.MemoryStore())

    with pytest.raises(BadOutput, match=what):
        probe(storage)

    assert list(obstore.list(storage.store)) == []


def test_a_store_without_compare_and_swap_is_refused(tmp_path: Path) -> None:
    storage = ObjectStorage("store", obstore.store.LocalStore(tmp_path))

    with pytest.raises(BadOutput, match=r"`store` cannot be written"):
        probe(storage)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        getattr(obstore.exceptions, name)("gone wrong\n\nDebug source: secrets")
        for name in dir(obstore.exceptions)
        if name.endswith("Error")
    ]
    + [PermissionError("no"), ConnectionError("cut"), TimeoutError("late")],
)
def test_every_error_of_the_library_is_translated(error: Exception) -> None:
    storage = ObjectStorage("memory://x/", obstore.store.MemoryStore())

    with (
        pytest.raises(StorageError, match=r"`memory://x/a/b`: \w+") as told,
        storage._told("a/b"),
    ):
        raise error

    assert told.value.__cause__ is error
    assert "\n" not in str(told.value)
