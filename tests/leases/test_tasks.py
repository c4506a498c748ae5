"""One holder a task; nobody waits for the dead, nobody pushes the living aside."""

import functools
import json
import os
import threading
from collections.abc import Callable

import pytest

from rowmill import rundir
from rowmill.errors import OutputInUse, StorageError
from rowmill.leases import Leases, claim_output
from rowmill.leases.heart import Heart
from rowmill.storage import Storage
from tests.leases.places import Clock


def worker(storage: Storage, name: str, clock: Clock, token: str = "run-1") -> Leases:
    return Leases(storage, worker=name, token=token, lease_s=30, clock=clock)


def test_the_first_to_ask_holds_the_task(storage: Storage) -> None:
    one, two = worker(storage, "one", Clock()), worker(storage, "two", Clock())

    assert one.claim(7) == 1
    assert two.claim(7) is None
    assert two.claim(8) == 1
    assert one.claim(7) == 1
    assert not one.is_lost(7)
    assert two.is_lost(7)


def test_a_lease_tells_people_who_holds_it(storage: Storage) -> None:
    worker(storage, "node-3", Clock()).claim(7)

    lease = json.loads(storage.read(rundir.lease(7)))
    assert (lease["task"], lease["epoch"], lease["worker"]) == (7, 1, "node-3")


def test_a_task_given_back_is_free_at_once_under_a_new_epoch(storage: Storage) -> None:
    one, two = worker(storage, "one", Clock()), worker(storage, "two", Clock())
    one.claim(7)
    one.release(7)

    assert one.is_lost(7)
    assert two.claim(7) == 2
    assert one.claim(7) is None


def test_a_lease_that_stood_still_is_taken_over(storage: Storage) -> None:
    clock = Clock()
    one, two = worker(storage, "one", Clock()), worker(storage, "two", clock)
    one.claim(7)

    assert two.claim(7) is None
    clock.pass_by(29.9)
    assert two.claim(7) is None
    clock.pass_by(0.1)
    assert two.claim(7) == 2


def test_first_sight_starts_the_clock(storage: Storage) -> None:
    """However long the holder has been silent before, nobody was looking."""
    clock = Clock()
    worker(storage, "one", Clock()).claim(7)
    clock.pass_by(1e6)
    two = worker(storage, "two", clock)

    assert two.claim(7) is None
    clock.pass_by(30)
    assert two.claim(7) == 2


def test_a_lease_that_beats_is_never_taken(storage: Storage) -> None:
    clock = Clock()
    one, two = worker(storage, "one", clock), worker(storage, "two", clock)
    one.claim(7)
    for _ in range(10):
        assert two.claim(7) is None
        clock.pass_by(20)
        one.beat()

    assert not one.is_lost(7)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_another_machines_clock_does_not_matter(storage: Storage, jump: float) -> None:
    theirs, mine = Clock(), Clock()
    one, two = worker(storage, "one", theirs), worker(storage, "two", mine)
    one.claim(7)

    assert two.claim(7) is None
    theirs.pass_by(jump)
    one.beat()
    mine.pass_by(29)
    assert two.claim(7) is None
    mine.pass_by(29)
    assert two.claim(7) is None


def test_a_holder_that_slept_through_learns_it_when_it_asks(storage: Storage) -> None:
    clock = Clock()
    one, two = worker(storage, "one", clock), worker(storage, "two", clock)
    old = one.claim(7)
    two.claim(7)
    clock.pass_by(30)
    new = two.claim(7)

    assert old is not None
    assert new is not None
    assert new > old
    # It slept: no beat of its own has told it.
    assert one.is_lost(7)
    assert not two.is_lost(7)


def test_a_late_beat_does_not_take_the_task_back(storage: Storage) -> None:
    clock = Clock()
    one, two = worker(storage, "one", clock), worker(storage, "two", clock)
    one.claim(7)
    two.claim(7)
    clock.pass_by(30)
    two.claim(7)
    one.beat()
    one.release(7)

    assert json.loads(storage.read(rundir.lease(7)))["worker"] == "two"
    assert not two.is_lost(7)


def test_one_that_slept_and_was_not_missed_goes_on(storage: Storage) -> None:
    clock = Clock()
    one = worker(storage, "one", clock)
    one.claim(7)
    clock.pass_by(1000)

    assert not one.is_lost(7)
    assert json.loads(storage.read(rundir.lease(7)))["beat"] == 1


def test_a_lost_task_can_be_held_again_later(storage: Storage) -> None:
    clock = Clock()
    one, two = worker(storage, "one", clock), worker(storage, "two", clock)
    one.claim(7)
    two.claim(7)
    clock.pass_by(30)
    two.claim(7)
    assert one.is_lost(7)
    two.release(7)

    assert one.claim(7) == 3
    assert not one.is_lost(7)


def test_workers_of_one_name_are_not_taken_for_each_other(storage: Storage) -> None:
    clock = Clock()
    one, two = worker(storage, "same", clock), worker(storage, "same", clock)

    assert one.claim(7) == 1
    assert two.claim(7) is None
    clock.pass_by(30)
    assert two.claim(7) == 2
    assert one.is_lost(7)


def test_many_at_once_one_holds(storage: Storage) -> None:
    clock = Clock()
    workers = [worker(storage, f"w{i}", clock) for i in range(6)]

    for expected in (1, 2, 3):
        epochs = at_once([functools.partial(w.claim, 7) for w in workers])
        assert sorted(e or 0 for e in epochs) == [0, 0, 0, 0, 0, expected]
        # All have seen it stand still; the race is for the take-over now.
        for each in workers:
            each._held.clear()
            each.claim(7)
        clock.pass_by(30)


def at_once(acts: list[Callable[[], int | None]]) -> list[int | None]:
    line = threading.Barrier(len(acts))
    got: dict[int, int | None] = {}

    def go(i: int) -> None:
        line.wait()
        got[i] = acts[i]()

    threads = [threading.Thread(target=go, args=(i,)) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [got[i] for i in range(len(acts))]


def test_leases_of_a_dead_run_are_free_at_once(storage: Storage) -> None:
    with claim_output(storage, token="old"):
        assert worker(storage, "one", Clock(), token="old").claim(7) == 1
    with claim_output(storage, token="new"):
        assert worker(storage, "two", Clock(), token="new").claim(7) == 2


def test_a_worker_of_a_run_that_lost_the_output_takes_nothing(storage: Storage) -> None:
    with claim_output(storage, token="old"):
        pass
    with claim_output(storage, token="new"):
        worker(storage, "two", Clock(), token="new").claim(7)
        stale = worker(storage, "one", Clock(), token="old")

        with pytest.raises(OutputInUse, match=f"process {os.getpid()} on"):
            stale.claim(7)


def test_the_context_beats_by_itself_and_gives_back(storage: Storage) -> None:
    """A lease of 30 ms is held for many times that, by the real clock."""
    with Leases(storage, worker="one", token="t", lease_s=0.03) as leases:
        leases.claim(7)
        seen: set[int] = set()
        while len(seen) < 4:
            seen.add(json.loads(storage.read(rundir.lease(7)))["beat"])

    assert json.loads(storage.read(rundir.lease(7)))["worker"] == ""


def test_a_worker_whose_beats_stopped_is_fenced(storage: Storage) -> None:
    clock = Clock()
    with worker(storage, "one", clock) as one:
        old = one.claim(7)
        assert one._heart is not None
        one._heart.stop()
        two = worker(storage, "two", clock)
        two.claim(7)
        clock.pass_by(31)

        assert two.claim(7) == 2
        assert old == 1
        assert one.is_lost(7)


def test_no_beat_comes_after_stop() -> None:
    beats: list[int] = []
    heart = Heart(lambda: beats.append(1), every_s=0.001)
    heart.start()
    while not beats:
        pass
    heart.stop()
    num_beats = len(beats)
    heart.stop()

    assert len(beats) == num_beats
    assert not heart._thread.is_alive()


def test_a_foreign_file_in_place_of_a_lease_is_told(storage: Storage) -> None:
    storage.create(rundir.lease(7), b"not a lease")

    with pytest.raises(StorageError, match="is no lease of rowmill"):
        worker(storage, "one", Clock()).claim(7)
