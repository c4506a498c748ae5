"""A file that is changed while it is read ends the reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.errors import StorageError
from rowmill.read.opened import state_of
from rowmill.read.steady import steady
from rowmill.rows import Shard
from tests.read.files import touch


@pytest.mark.parametrize("what", ["time", "size", "other file", "nothing"])
def test_any_change_is_seen(tmp_path: Path, what: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12")
    reading = steady(Shard(0, str(path), "f", 0, 2, 1, 1), lambda: state_of(str(path)))
    reading.__enter__()
    if what == "time":
        touch(path)
    elif what == "size":
        path.write_bytes(b"123")
    elif what == "other file":
        path.rename(tmp_path / "g")
        path.write_bytes(b"12")

    if what == "nothing":
        reading.__exit__(None, None, None)
    else:
        with pytest.raises(StorageError, match="changed while"):
            reading.__exit__(None, None, None)
