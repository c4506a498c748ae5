"""What is on record of a store: each task counts once, and what cannot be read is loaded again."""

from __future__ import annotations

from pathlib import Path

from rowmill.load.ledger import Ledger, Loaded
from rowmill.storage import LocalStorage


def test_a_task_that_was_asked_again_counts_once(tmp_path: Path) -> None:
    ledger = Ledger(LocalStorage(str(tmp_path)), "a store")
    ledger.add("commits/0000001.json", Loaded(rows=8, vectors=8))
    ledger.add("commits/0000000.json", Loaded(rows=5, vectors=5))
    ledger.add("commits/0000000.r001.json", Loaded(rows=9, vectors=9, refused=1))
    again = Ledger(LocalStorage(str(tmp_path)), "a store")

    assert again.by_commit == ledger.by_commit
    assert again.num_vectors == 17
    assert Ledger(LocalStorage(str(tmp_path)), "another").num_vectors == 0


def test_a_record_that_is_damaged_is_none(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    Ledger(storage, "a store").add("commits/0000001.json", Loaded(rows=8, vectors=8))
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(file.read_bytes()[:-3])

    assert Ledger(storage, "a store").by_commit == {}
