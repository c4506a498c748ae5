"""One suite for every place that output may lie in."""

import functools
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obstore.store import MemoryStore

from rowmill.errors import ConfigError, StorageError
from rowmill.storage import (
    LocalStorage,
    NotThere,
    ObjectStorage,
    Storage,
    open_storage,
    probe,
)
from tests.servers.s3_server import S3Server


def fresh_local(folder: Path) -> Storage:
    return open_storage(str(folder / "out"))


def fresh_memory(folder: Path) -> Storage:
    return ObjectStorage(f"memory://{folder.name}", MemoryStore())


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        return fresh_s3(request.getfixturevalue("s3_server"))
    return fresh_local(tmp_path) if request.param == "local" else fresh_memory(tmp_path)


def fresh_s3(server: S3Server) -> Storage:
    prefix = f"contract/{secrets.token_hex(4)}"
    return ObjectStorage(f"s3://contract/{prefix}", server.store("contract", prefix))


def version_of(storage: Storage, name: str) -> str:
    found = storage.read_versioned(name)

    assert found is not None
    return found[1]


def test_create_keeps_what_is_there(storage: Storage) -> None:
    assert storage.create("a/b.json", b"first")
    assert not storage.create("a/b.json", b"second")

    assert storage.read("a/b.json") == b"first"


def test_an_empty_object_is_there(storage: Storage) -> None:
    assert storage.create("empty", b"")

    assert storage.size("empty") == 0
    assert storage.read("empty") == b""
    assert storage.read_range("empty", 0, 5) == b""


def test_absent_is_told_apart_from_broken(storage: Storage) -> None:
    with pytest.raises(NotThere, match="no such object"):
        storage.read("no")
    with pytest.raises(NotThere, match="no such object"):
        storage.read_range("no", 0, 1)

    assert storage.size("no") is None
    assert storage.read_versioned("no") is None
    assert storage.list("no") == []
    storage.remove("no")


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(0, 3, b"012"), (1, 2, b"1"), (2, 99, b"2345"), (6, 9, b""), (9, 12, b""), (3, 3, b"")],
)
def test_a_range_ends_with_the_object(
    storage: Storage, start: int, stop: int, expected: bytes
) -> None:
    storage.replace("digits", b"012345")

    assert storage.read_range("digits", start, stop) == expected


def test_swap_needs_the_version_it_read(storage: Storage) -> None:
    storage.create("lease", b"1")
    first = version_of(storage, "lease")

    second = storage.swap("lease", b"2", first)

    assert second is not None
    assert storage.swap("lease", b"3", first) is None
    assert storage.read("lease") == b"2"
    assert storage.swap("lease", b"3", second) is not None
    assert storage.read("lease") == b"3"


def test_swap_does_not_bring_back_what_was_removed(storage: Storage) -> None:
    storage.create("lease", b"1")
    version = version_of(storage, "lease")
    storage.remove("lease")

    assert storage.swap("lease", b"2", version) is None
    assert storage.size("lease") is None


def test_swap_sees_a_replace(storage: Storage) -> None:
    storage.create("lease", b"1")
    version = version_of(storage, "lease")
    storage.replace("lease", b"2")

    assert storage.swap("lease", b"3", version) is None
    assert storage.read("lease") == b"2"


def test_list_takes_any_beginning_and_every_depth(storage: Storage) -> None:
    names = ["a/1", "a/10/x", "a/2", "ab", "b/c/d"]
    for name in reversed(names):
        storage.create(name, b"")

    assert storage.list("") == names
    assert storage.list("a") == ["a/1", "a/10/x", "a/2", "ab"]
    assert storage.list("a/") == ["a/1", "a/10/x", "a/2"]
    assert storage.list("a/1") == ["a/1", "a/10/x"]
    assert storage.list("b/c/d") == ["b/c/d"]
    assert storage.list("c/") == []


def test_names_beginning_with_a_dot_are_not_listed(storage: Storage) -> None:
    storage.create(".own", b"")
    storage.create("a/.own", b"")
    storage.create("a/yours", b"")

    assert storage.list("") == ["a/yours"]


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\0b"])
def test_a_name_stays_inside_the_root(storage: Storage, name: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: storage.read(name),
        lambda: storage.create(name, b""),
        lambda: storage.replace(name, b""),
        lambda: storage.remove(name),
        lambda: storage.size(name),
        lambda: storage.path(name),
    ]
    for act in acts:
        with pytest.raises(ValueError, match="no name inside a storage"):
            act()


def test_of_many_creators_one_wins(storage: Storage) -> None:
    def create(me: int, turn: int) -> bool:
        return storage.create(f"commits/{turn}", b"%d" % me)

    for turn in range(5):
        won = race(8, functools.partial(create, turn=turn))

        assert sum(won) == 1
        assert storage.read(f"commits/{turn}") == b"%d" % won.index(True)


def test_of_many_swappers_one_wins(storage: Storage) -> None:
    def swap(me: int, turn: int, version: str) -> bool:
        return bool(storage.swap("lease", b"%d %d" % (turn, me), version))

    storage.create("lease", b"start")
    for turn in range(5):
        version = version_of(storage, "lease")
        won = race(8, functools.partial(swap, turn=turn, version=version))

        assert sum(won) == 1
        assert storage.read("lease") == b"%d %d" % (turn, won.index(True))


def test_counting_by_swap_loses_no_count(storage: Storage) -> None:
    storage.create("count", b"0")

    def add_ten(_: int) -> bool:
        added = 0
        while added < 10:
            found = storage.read_versioned("count")
            assert found is not None
            added += bool(storage.swap("count", b"%d" % (int(found[0]) + 1), found[1]))
        return True

    assert all(race(4, add_ten))
    assert storage.read("count") == b"40"


def race(num_threads: int, act: Callable[[int], bool]) -> list[bool]:
    """What each of the threads got that went off at once."""
    line = threading.Barrier(num_threads)
    got: list[bool | None] = [None] * num_threads

    def go(me: int) -> None:
        line.wait()
        got[me] = act(me)

    threads = [threading.Thread(target=go, args=(me,)) for me in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert None not in got
    return [bool(one) for one in got]


def test_memory_of_one_name_is_one_store() -> None:
    open_storage("memory://shared-name").replace("a", b"1")

    assert open_storage("memory://shared-name").read("a") == b"1"
    assert open_storage("memory://other-name").size("a") is None


def test_objects_cannot_be_appended_to(tmp_path: Path) -> None:
    storage = fresh_memory(tmp_path)

    assert not storage.can_append
    assert storage.path("a") is None
    with pytest.raises(StorageError, match="cannot be appended to"):
        storage.appender("a")


@pytest.mark.parametrize("url", ["http://b/x", "hdfs://b/x", "file:///tmp/x", "memory://"])
def test_another_scheme_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError, match="is no place that results can go to") as refusal:
        open_storage(url)

    assert url in str(refusal.value)


@pytest.mark.parametrize("url", ["", "  ", "a\0b"])
def test_no_name_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="name a folder"):
        open_storage(url)


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_storage(str(tmp_path / "out")).list("")

    assert list(tmp_path.iterdir()) == []


NAMES = st.sampled_from(["a", "b/1", "b/2", "b/c/d", "e/f"])
CONTENTS = st.binary(max_size=20)


class AgainstDict(RuleBasedStateMachine):
    """Any sequence of calls has the effect it has on a dict."""

    def fresh(self) -> Storage:
        raise NotImplementedError

    @initialize()
    def start(self) -> None:
        self.storage = self.fresh()
        self.model: dict[str, bytes] = {}
        self.versions: dict[str, tuple[bytes, str]] = {}

    @rule(name=NAMES, content=CONTENTS)
    def create(self, name: str, content: bytes) -> None:
        assert self.storage.create(name, content) == (name not in self.model)
        self.model.setdefault(name, content)

    @rule(name=NAMES, content=CONTENTS)
    def replace(self, name: str, content: bytes) -> None:
        self.storage.replace(name, content)
        self.model[name] = content

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.storage.remove(name)
        self.model.pop(name, None)

    @rule(name=NAMES)
    def look(self, name: str) -> None:
        found = self.storage.read_versioned(name)
        assert (found[0] if found else None) == self.model.get(name)
        if found:
            self.versions[name] = found

    @rule(name=NAMES, content=CONTENTS)
    def swap(self, name: str, content: bytes) -> None:
        if name not in self.versions:
            return
        seen, version = self.versions[name]
        new = self.storage.swap(name, content, version)
        if new is None:
            # Refused for a change at least once; with the same content since, both answers are right.
            assert self.model.get(name) != seen or isinstance(self.storage, ObjectStorage)
            return
        assert self.model[name] == seen
        self.model[name] = content
        self.versions[name] = (content, new)

    @rule(name=NAMES, start=st.integers(0, 25), length=st.integers(0, 25))
    def read_range(self, name: str, start: int, length: int) -> None:
        if name in self.model:
            part = self.storage.read_range(name, start, start + length)
            assert part == self.model[name][start : start + length]

    @rule(prefix=st.sampled_from(["", "b", "b/", "b/c", "b/c/", "e/f", "z"]))
    def list_some(self, prefix: str) -> None:
        expected = sorted(name for name in self.model if name.startswith(prefix))
        assert self.storage.list(prefix) == expected

    @invariant()
    def sizes_agree(self) -> None:
        for name in ("a", "b/c/d"):
            size = len(self.model[name]) if name in self.model else None
            assert self.storage.size(name) == size


class MemoryAgainstDict(AgainstDict):
    def fresh(self) -> Storage:
        return ObjectStorage("memory://stateful", MemoryStore())


TestMemoryAgainstDict = MemoryAgainstDict.TestCase
TestMemoryAgainstDict.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None
)


@pytest.fixture
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("out")


def test_local_against_dict(folders: Callable[[], Path]) -> None:
    class LocalAgainstDict(AgainstDict):
        def fresh(self) -> Storage:
            return LocalStorage(str(folders()))

    case = LocalAgainstDict.TestCase
    case.settings = settings(
        max_examples=15,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()


@pytest.mark.slow
def test_s3_against_dict(s3_server: S3Server) -> None:
    class S3AgainstDict(AgainstDict):
        def fresh(self) -> Storage:
            return fresh_s3(s3_server)

    case = S3AgainstDict.TestCase
    case.settings = settings(
        max_examples=25,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()


def test_probe_passes_and_leaves_nothing(storage: Storage) -> None:
    storage.create("there", b"before")

    probe(storage)

    assert storage.list("") == ["there"]
