"""One owner an output, one holder a task; nobody waits for the dead, nobody pushes the living aside."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from rowmill import rundir
from rowmill.errors import BadOutput, OutputInUse, StorageError
from rowmill.leases import Leases, claim_output, current_note
from rowmill.leases.heart import Heart
from rowmill.storage import ObjectStorage, Storage, open_storage


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def fresh_local(folder: Path) -> Storage:
    return open_storage(str(folder / "out"))


def fresh_memory(folder: Path) -> Storage:
    return ObjectStorage(f"memory://{folder.name}", MemoryStore())


@pytest.fixture(params=[fresh_local, fresh_memory])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: Storage = request.param(tmp_path)
    return made


def worker(storage: Storage, name: str, clock: Clock, token: str = "run-1") -> Leases:
    return Leases(storage, worker=name, token=token, lease_s=30, clock=clock)


# Leases of tasks


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
        epochs = at_once([lambda w=w: w.claim(7) for w in workers])  # type: ignore[misc]
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


# Ownership, in one process


def test_a_second_run_is_refused_and_told_of_the_first(storage: Storage) -> None:
    with claim_output(storage, lease_s=0.5), pytest.raises(OutputInUse) as refusal:
        claim_output(storage, lease_s=0.5)

    for part in (f"process {os.getpid()}", socket.gethostname(), "since 20", storage.url):
        assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_another_token_is_refused_the_same_one_joins(storage: Storage) -> None:
    with claim_output(storage, token="mine", lease_s=0.5) as first:
        with claim_output(storage, token="mine", lease_s=0.5) as second:
            assert (first.has_joined, second.has_joined) == (False, True)
            assert first.token == second.token == "mine"
        with pytest.raises(OutputInUse):
            claim_output(storage, token="theirs", lease_s=0.5)


def test_an_output_given_back_can_be_owned_again(storage: Storage) -> None:
    first = claim_output(storage)
    first.close()
    first.close()

    with claim_output(storage) as second:
        assert not second.has_joined
        assert second.token != first.token
        note = current_note(storage)
        assert note is not None
        assert note.token == second.token


def test_workers_that_joined_keep_other_runs_out(storage: Storage) -> None:
    first = claim_output(storage, token="mine", lease_s=0.5)
    with claim_output(storage, token="mine", lease_s=0.5):
        first.close()
        with pytest.raises(OutputInUse, match=f"process {os.getpid()} on"):
            claim_output(storage, token="theirs", lease_s=0.5)
        with claim_output(storage, token="mine", lease_s=0.5) as third:
            assert third.token == "mine"

    claim_output(storage, token="theirs", lease_s=0.5).close()


def test_an_owner_that_lives_has_not_lost(storage: Storage) -> None:
    with claim_output(storage) as owner:
        assert not owner.is_lost()


# Ownership by a note


def noted_owner(storage: Storage, clock: Clock, **more: object) -> object:
    return claim_output(storage, lease_s=30, clock=clock, pause=clock.pass_by, **more)  # type: ignore[arg-type]


def test_a_note_that_stands_still_is_taken_over(tmp_path: Path) -> None:
    storage, clock = fresh_memory(tmp_path), Clock()
    first = claim_output(storage, token="old", lease_s=1e9)
    first._heart.stop()  # type: ignore[attr-defined]

    with claim_output(storage, token="new", lease_s=30, clock=clock, pause=clock.pass_by) as new:
        assert not new.has_joined
        first.beat()  # type: ignore[attr-defined]
        assert first.is_lost()
        assert clock.now >= 1030
        first.close()
        assert not new.is_lost()
        note = current_note(storage)
        assert note is not None
        assert note.token == "new"


def test_a_note_that_moves_is_never_taken_over(tmp_path: Path) -> None:
    storage, clock = fresh_memory(tmp_path), Clock()
    first = claim_output(storage, token="old", lease_s=1e9)

    def pause(seconds: float) -> None:
        clock.pass_by(29)
        first.beat()  # type: ignore[attr-defined]

    with first, pytest.raises(OutputInUse):
        claim_output(storage, token="new", lease_s=30, clock=clock, pause=pause)


def test_any_living_member_keeps_the_note_moving(tmp_path: Path) -> None:
    storage = fresh_memory(tmp_path)
    first = claim_output(storage, token="t", lease_s=1e9)
    second = claim_output(storage, token="t", lease_s=1e9)
    before = current_note(storage)
    second.beat()  # type: ignore[attr-defined]
    after = current_note(storage)

    assert before is not None
    assert after is not None
    assert after.beat == before.beat + 1
    assert len(after.members) == 2
    first.close()
    second.close()
    last = current_note(storage)
    assert last is not None
    assert last.members == []


def test_a_cut_note_is_nobodys(tmp_path: Path) -> None:
    storage = fresh_memory(tmp_path)
    storage.create(rundir.OWNER_NOTE, b'{"token": "x", "mem')

    with claim_output(storage, token="t") as owner:
        assert not owner.has_joined


# Ownership between processes, by file locks

CHILD = """
import sys, time
from rowmill.errors import OutputInUse
from rowmill.leases import claim_output
from rowmill.storage import open_storage
storage = open_storage(sys.argv[1])
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
try:
    owner = claim_output(storage, token=sys.argv[2] if len(sys.argv) > 2 else None)
except OutputInUse as refusal:
    sys.stdout.write(f"refused {refusal}\\n"); sys.stdout.flush()
    raise SystemExit(2)
sys.stdout.write("joined\\n" if owner.has_joined else "owner\\n"); sys.stdout.flush()
sys.stdin.readline()
"""


class Child:
    """Another process that claims when told to."""

    def __init__(self, storage: Storage, *token: str) -> None:
        command = [sys.executable, "-c", CHILD, storage.url, *token]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.hear() == "ready"

    @property
    def pid(self) -> int:
        return self.process.pid

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return fresh_local(tmp_path)


@pytest.fixture
def child(local: Storage) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(*token: str) -> Child:
        children.append(Child(local, *token))
        return children[-1]

    yield start
    for one in children:
        one.end()


@pytest.mark.parametrize("turn", range(20))
def test_of_two_that_start_at_once_one_owns(
    local: Storage, child: Callable[..., Child], turn: int
) -> None:
    one, two = child(), child()
    first, second = (one, two) if turn % 2 else (two, one)
    first.go()
    second.go()
    heard = {first.pid: first.hear(), second.pid: second.hear()}

    winner = [pid for pid, word in heard.items() if word == "owner"]
    refused = [word for word in heard.values() if word.startswith("refused")]
    assert len(winner) == len(refused) == 1
    assert f"process {winner[0]} on `{socket.gethostname()}` since 20" in refused[0]


def test_after_sigkill_the_next_start_takes_over_at_once(
    local: Storage, child: Callable[..., Child]
) -> None:
    for _ in range(3):
        one, two = child(), child()
        one.go()
        assert one.hear() == "owner"
        # Not waited for: the next one may come while the first is still being taken down.
        one.process.kill()
        two.go()
        assert two.hear() == "owner"
        two.end()


@pytest.mark.parametrize(
    "note",
    [
        {"token": "x", "members": [{"id": "a", "pid": os.getpid(), "host": "elsewhere", "since": ""}]},
        {"token": "x", "members": [{"id": "a", "pid": 1, "host": socket.gethostname(), "since": ""}]},
        {"token": "x", "members": []},
        "4711 elsewhere",
        None,
    ],
)
def test_a_lock_file_without_a_lock_stops_nobody(local: Storage, note: object) -> None:
    local.create(rundir.OWNER_LOCK, json.dumps(note).encode() if note else b"")

    with claim_output(local, token="mine") as owner:
        assert not owner.has_joined


def test_processes_of_one_token_share_and_outlive_the_first(
    local: Storage, child: Callable[..., Child]
) -> None:
    one, two, three, four = child("t"), child("t"), child("t"), child("other")
    one.go()
    assert one.hear() == "owner"
    two.go()
    assert two.hear() == "joined"
    one.process.kill()
    four.go()
    assert f"process {two.pid} on" in four.hear()
    three.go()
    assert three.hear() == "owner"


def test_a_program_that_is_started_does_not_keep_the_lock(local: Storage) -> None:
    with claim_output(local):
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        claim_output(local).close()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_forked_child_does_not_keep_the_lock(local: Storage) -> None:
    code = """
import os, sys
from rowmill.leases import claim_output
from rowmill.storage import open_storage
owner = claim_output(open_storage(sys.argv[1]))
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(write)
    os.read(read, 1)
    os._exit(0)
owner.close()
try:
    claim_output(open_storage(sys.argv[1])).close()
finally:
    os.close(write)
    os.waitpid(pid, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, local.url], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert done.returncode == 0


def test_an_owner_whose_lock_file_was_removed_knows_it(local: Storage) -> None:
    with claim_output(local) as owner:
        local.remove(rundir.OWNER_LOCK)

        assert owner.is_lost()


def test_an_output_that_cannot_be_locked_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("")

    with pytest.raises(BadOutput, match=r"no lock to be had on .*: Not a directory"):
        claim_output(open_storage(str(tmp_path / "file")))


def test_a_file_system_without_locks_is_refused(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    def no_locks(fd: int, mode: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)

    with pytest.raises(BadOutput, match="No locks available; name a folder"):
        claim_output(local)
