"""Names in a run folder, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import rundir
from rowmill.storage import check_name

TASKS = st.integers(0, 9_999_999)


@given(TASKS, st.integers(1, 9999), st.integers(0, 99_999))
def test_a_segment_name_reads_back(task: int, epoch: int, number: int) -> None:
    name = rundir.segment(task, epoch, number)

    assert rundir.parse_segment(check_name(name)) == (task, epoch, number)
    assert name.startswith(rundir.segments_of(task))


@given(TASKS, TASKS)
def test_names_sort_as_numbers_do(one: int, other: int) -> None:
    for make in (rundir.commit, rundir.lease, rundir.prepared, rundir.segments_of):
        assert (make(one) < make(other)) == (one < other)


@given(st.tuples(TASKS, st.integers(1, 9999), st.integers(0, 99_999)), st.data())
def test_segments_sort_by_task_epoch_and_number(
    one: tuple[int, int, int], data: st.DataObject
) -> None:
    other = data.draw(st.tuples(TASKS, st.integers(1, 9999), st.integers(0, 99_999)))

    assert (rundir.segment(*one) < rundir.segment(*other)) == (one < other)


@given(TASKS)
def test_numbers_read_back(number: int) -> None:
    assert rundir.task_of_commit(rundir.commit(number)) == number
    assert rundir.task_of_lease(rundir.lease(number)) == number
    assert rundir.task_of_prepared(rundir.prepared(number)) == number
    assert rundir.pid_of_engine(rundir.engine(number)) == number
    assert rundir.number_of_part(rundir.part(number)) == number


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_worker_name_becomes_a_file_name(worker: str) -> None:
    name = check_name(rundir.events(worker))

    assert name.count("/") == 1
    assert not name.startswith("events/.")
    assert rundir.worker_of_events(name) == worker


def test_a_plain_worker_name_stays_readable() -> None:
    assert rundir.events("node-7.cluster_4711") == "events/node-7.cluster_4711.jsonl"


@pytest.mark.parametrize(
    "name",
    ["commits/x.json", "commits/1.json.bak", "other/0000001.json", "leases/owner.json", ""],
)
def test_a_foreign_name_is_no_task(name: str) -> None:
    assert rundir.task_of_commit(name) is None
    assert rundir.task_of_lease(name) is None
    assert rundir.parse_segment(name) is None
    assert rundir.worker_of_events(name) is None


def test_our_names_are_told_from_others() -> None:
    ours = [rundir.RUN, rundir.TASKS, rundir.segment(1, 1, 0), rundir.DONE, rundir.OWNER_LOCK]

    assert all(rundir.is_ours(name) for name in ours)
    assert not any(rundir.is_ours(n) for n in ("thesis.docx", "old/run.json", "planets/mars"))
