"""One owner an output, whether files can be locked or not."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from rowmill import rundir
from rowmill.errors import BadOutput, OutputInUse
from rowmill.leases import OwnerNote, claim_output, current_note
from rowmill.leases import note as note_module
from rowmill.storage import Storage, open_storage
from tests.leases.places import Clock, fresh_local, fresh_memory

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
            assert third.has_joined

    claim_output(storage, token="theirs", lease_s=0.5).close()


def test_an_owner_that_lives_has_not_lost(storage: Storage) -> None:
    with claim_output(storage) as owner:
        assert not owner.is_lost()


# Ownership by a note


def test_a_note_that_stands_still_is_taken_over(tmp_path: Path) -> None:
    storage, clock = fresh_memory(tmp_path), Clock()
    first = claim_output(storage, token="old", lease_s=1e9)
    first._heart.stop()  # type: ignore[attr-defined]

    with claim_output(
        storage, token="new", lease_s=30, clock=clock, pause=clock.pass_by
    ) as new:
        assert not new.has_joined
        first.beat()  # type: ignore[attr-defined]
        assert first.is_lost()
        assert clock.now >= 1030
        first.close()
        assert not new.is_lost()
        note = current_note(storage)
        assert note is not None
        assert note.token == "new"


@pytest.mark.parametrize("why", ["ended", "its id is another's now"])
def test_an_owner_that_died_on_this_machine_is_followed_at_once(
    tmp_path: Path, why: str
) -> None:
    storage, clock = fresh_memory(tmp_path), Clock()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = msgspec.structs.replace(note_module.this_process(), pid=child.pid, started="1")
    if why == "ended":
        child.kill()
        child.wait()
    storage.create(rundir.OWNER_NOTE, msgspec.json.encode(OwnerNote("old", [dead])))

    with claim_output(
        storage, token="new", lease_s=1e9, clock=clock, pause=clock.pass_by
    ) as new:
        assert not new.has_joined
    child.kill()
    child.communicate()
    assert clock.now == 1000


def test_a_process_of_another_machine_is_not_taken_for_dead(tmp_path: Path) -> None:
    storage, clock = fresh_memory(tmp_path), Clock()
    other = msgspec.structs.replace(
        note_module.this_process(), pid=1 << 22, machine="other boot"
    )
    storage.create(rundir.OWNER_NOTE, msgspec.json.encode(OwnerNote("old", [other])))

    claim_output(storage, token="new", lease_s=30, clock=clock, pause=clock.pass_by).close()

    assert clock.now >= 1030


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
import sys
from rowmill.errors import OutputInUse
from rowmill.leases import claim_output
from rowmill.storage import open_storage
storage = open_storage(sys.argv[1])
token = sys.argv[2] if len(sys.argv) > 2 else None
def say(word):
    sys.stdout.write(word + "\\n"); sys.stdout.flush()
say("ready")
for line in sys.stdin:
    if line == "close\\n":
        owner.close()
        say("closed")
        continue
    try:
        owner = claim_output(storage, token=token)
    except OutputInUse as refusal:
        say(f"refused {refusal}")
    else:
        say("joined" if owner.has_joined else "owner")
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

    def go(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
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


def test_of_two_that_start_at_once_one_owns(child: Callable[..., Child]) -> None:
    pair = [child(), child()]
    for _ in range(20):
        pair.reverse()
        for one in pair:
            one.go()
        heard = {one: one.hear() for one in pair}
        winners = [one for one, word in heard.items() if word == "owner"]
        refused = [word for word in heard.values() if word.startswith("refused")]

        assert len(winners) == len(refused) == 1
        who = f"process {winners[0].pid} on `{socket.gethostname()}` since 20"
        assert who in refused[0]
        winners[0].go("close")
        assert winners[0].hear() == "closed"


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
        {
            "token": "x",
            "members": [{"id": "a", "pid": os.getpid(), "host": "elsewhere", "since": ""}],
        },
        {
            "token": "x",
            "members": [{"id": "a", "pid": 1, "host": socket.gethostname(), "since": ""}],
        },
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
    # It takes the first one's place, and is told that it is not alone.
    assert three.hear() == "joined"
    two.process.kill()
    four.go()
    assert f"process {three.pid} on" in four.hear()


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
hears, says = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(write)
    os.write(says, b"1")
    os.read(read, 1)
    os._exit(0)
os.read(hears, 1)
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
    def no_locks(fd: int, mode: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)

    with pytest.raises(BadOutput, match="No locks available; name a folder"):
        claim_output(local)
