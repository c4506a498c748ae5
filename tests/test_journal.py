"""Outcomes -> commits: nothing lost, nothing doubled, wherever a writer died."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.journal import Again, Paid, TaskLog, read_commits, segments_of
from rowmill.outcomes import pack
from rowmill.rows import Outcome
from rowmill.storage import LocalStorage, Storage, open_storage
from rowmill.write.segments import read_outcomes
from tests.strategies import outcomes_of

KEYS = list(range(30))


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty place of either kind."""
    return open_storage(
        str(tmp_path / "run") if request.param == "local" else f"memory://{tmp_path}"
    )


def outcome(key: int, text: str = "a") -> Outcome:
    return Outcome(key, "ok", text=text, attempts=1)


def committed(storage: Storage, task: int = 0) -> list[Outcome]:
    """All outcomes of a committed task, as readers see them."""
    commit = read_commits(storage)[task]
    return [o for ref in commit.segments for part in read_outcomes(storage, ref) for o in part]


def test_a_commit_holds_every_outcome_in_key_order(storage: Storage) -> None:
    log = TaskLog(storage, 0, 1)
    log.put(pack([outcome(5), outcome(2)]))
    log.put(pack([outcome(9), outcome(1)]))

    assert log.commit("w")

    assert [1, 2, 5, 9] == [o.key for o in committed(storage)]
    assert 4 == read_commits(storage)[0].num_rows


def test_a_row_is_taken_once(storage: Storage) -> None:
    log = TaskLog(storage, 0, 1)
    log.put(pack([outcome(1, "first")]))

    new = log.put(pack([outcome(1, "second"), outcome(2)]))

    assert [2] == new.keys.tolist()
    log.commit("w")
    assert ["first", "a"] == [o.text for o in committed(storage)]


def test_a_later_epoch_goes_on_from_what_is_durable(storage: Storage) -> None:
    first = TaskLog(storage, 0, 1)
    first.put(pack([outcome(1), outcome(2)]))
    first.checkpoint()

    second = TaskLog(storage, 0, 2)

    assert {1, 2} == second.done
    assert 2 == second.num_resumed
    assert 2 == second.counts.ok


def test_of_two_commits_the_first_stands(storage: Storage) -> None:
    slow, quick = TaskLog(storage, 0, 1), TaskLog(storage, 0, 2)
    slow.put(pack([outcome(1, "slow")]))
    quick.put(pack([outcome(1, "quick")]))

    assert quick.commit("q")
    assert not slow.commit("s")

    assert ["quick"] == [o.text for o in committed(storage)]


def test_what_a_fenced_writer_appends_later_does_not_count(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    zombie = TaskLog(storage, 0, 1)
    zombie.put(pack([outcome(1, "old")]))
    heir = TaskLog(storage, 0, 2)
    zombie.put(pack([outcome(2, "late")]))
    heir.put(pack([outcome(2, "new")]))

    assert heir.commit("h")
    zombie.put(pack([outcome(3, "later")]))

    assert [(1, "old"), (2, "new")] == [(o.key, o.text) for o in committed(storage)]


def test_segments_that_a_commit_does_not_name_are_removed(storage: Storage) -> None:
    log = TaskLog(storage, 0, 1)
    log.put(pack([outcome(2)]))
    log.checkpoint()
    log.put(pack([outcome(1)]))

    log.commit("w")

    assert [r.name for r in read_commits(storage)[0].segments] == segments_of(storage, 0)


def test_changed_bytes_are_an_error_not_an_answer(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    log = TaskLog(storage, 0, 1)
    log.put(pack([outcome(1, "abc")]))
    log.commit("w")
    path = storage.path(segments_of(storage, 0)[0])
    path.write_bytes(path.read_bytes().replace(b"abc", b"abd"))

    with pytest.raises(StorageError, match="not those that were committed"):
        committed(storage)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cut_at_any_byte_every_row_lands_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A writer dies at any byte, up to three times; heirs ask again what is not there."""
    storage = LocalStorage(str(tmp_path_factory.mktemp("run")))
    for epoch in range(1, data.draw(st.integers(1, 4)) + 1):
        log = TaskLog(storage, 0, epoch)
        todo = data.draw(st.permutations([k for k in KEYS if k not in log.done]))
        for outcomes in data.draw(outcomes_of(todo).map(lambda every: [every[:7], every[7:]])):
            log.put(pack(outcomes))
        cut_last_segment(storage, data)
    heir = TaskLog(storage, 0, 9)
    heir.put(pack([outcome(k) for k in KEYS if k not in heir.done]))

    assert heir.commit("w")

    assert KEYS == [o.key for o in committed(storage)]


def cut_last_segment(storage: LocalStorage, data: st.DataObject) -> None:
    names = segments_of(storage, 0)
    if names:
        path = storage.path(names[-1])
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])


def test_counts_of_a_commit_are_those_of_its_outcomes(storage: Storage) -> None:
    log = TaskLog(storage, 3, 1)
    log.put(
        pack(
            [
                Outcome(
                    1, "ok", text="x", finish_reason="length", prompt_tokens=3, output_tokens=2
                ),
                Outcome(2, "ok", text="x", copied_from="f:1"),
                Outcome(
                    3, "error", error_kind="too_long", error="9214 prompt tokens, limit 8192"
                ),
                Outcome(
                    4, "error", error_kind="too_long", error="9999 prompt tokens, limit 8192"
                ),
            ]
        )
    )
    log.commit("w")

    counts = read_commits(storage)[3].counts
    assert (2, 2, 1, 1) == (counts.ok, counts.failed, counts.truncated, counts.copied)
    assert [("too_long", "9214 prompt tokens, limit 8192", 2)] == counts.top_errors(5)


def test_a_commit_is_named_by_its_task(storage: Storage) -> None:
    TaskLog(storage, 7, 1).commit("w")

    assert [rundir.commit(7)] == storage.list(rundir.COMMITS)
    assert 0 == read_commits(storage)[7].num_rows


def failed(key: int, kind: str, *, tokens: int = 0) -> Outcome:
    return Outcome(key, "error", error_kind=kind, error="no", prompt_tokens=tokens, attempts=1)


def test_what_failed_in_a_stopped_retry_is_asked_by_one_of_another_selection(
    storage: Storage,
) -> None:
    first = TaskLog(storage, 0, 1)
    first.put(pack([outcome(1), failed(2, "refused"), failed(3, "refused"), failed(4, "late")]))
    first.commit("w")
    before = read_commits(storage)[0]
    stopped = TaskLog(storage, 0, 2, Again(before, 1, ("refused",)))
    stopped.put(pack([outcome(2, "mended"), failed(3, "refused")]))
    stopped.close()
    left = tuple(segments_of(storage, 0)[1:])

    same = TaskLog(storage, 0, 3, Again(before, 1, ("refused",)))
    late = TaskLog(storage, 0, 4, Again(before, 2, ("late",), left))
    all_ = TaskLog(storage, 0, 5, Again(before, 2, (), left))

    assert {1, 2, 3, 4} == same.done
    assert {1, 2, 3} == late.done
    assert {1, 2} == all_.done
    assert (2, 2) == (late.counts.ok, all_.counts.ok)
    late.put(pack([outcome(4, "in time")]))
    late.commit("w")
    assert ["a", "mended", None, "in time"] == [o.text for o in committed(storage)]


def test_tokens_of_outcomes_that_were_replaced_stay_paid_for(storage: Storage) -> None:
    first = TaskLog(storage, 0, 1)
    first.put(
        pack([Outcome(1, "ok", prompt_tokens=5, output_tokens=2), failed(2, "x", tokens=7)])
    )
    first.commit("w")

    for number, tokens in enumerate((11, 13), 1):
        log = TaskLog(storage, 0, 1 + number, Again(read_commits(storage)[0], number, ()))
        log.put(pack([failed(2, "x", tokens=tokens)]))
        log.commit("w")

    commit = read_commits(storage)[0]
    assert 5 + 13 == commit.counts.prompt_tokens
    assert Paid(5 + 7 + 11 + 13, 2) == commit.paid()
