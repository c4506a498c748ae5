"""The real store behind one that says SlowDown, cuts connections and gives half answers."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from rowmill.errors import StorageError
from rowmill.storage import ObjectStorage, objects
from rowmill.storage.attempts import Attempts
from rowmill.storage.drafts import open_draft
from tests.cases.command import environment
from tests.cases.endpoint import wait_until
from tests.servers.faults import Asked, Fault, Faulty, Plan, faulty, first
from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.slow
MIB = 2**20


def place(faults: Faulty, *, budget_s: float = 30) -> ObjectStorage:
    prefix = f"faults/{secrets.token_hex(4)}"
    store = faults.server.store("faults", prefix, max_retries=0)
    return ObjectStorage(f"s3://faults/{prefix}", store, attempts=Attempts(budget_s=budget_s))


def behind(storage: ObjectStorage, server: S3Server) -> ObjectStorage:
    """The same place, seen without faults."""
    return ObjectStorage(
        storage.url, server.store("faults", storage.url[len("s3://faults/") :])
    )


@pytest.mark.parametrize(
    "fault", ["slow down", "error", "cut before", "cut after", "half answer"]
)
def test_every_call_comes_through(s3_server: S3Server, fault: Fault) -> None:
    with faulty(s3_server, first(2, fault, "PUT", "GET", "HEAD", "DELETE")) as faults:
        storage = place(faults)

        assert storage.create("new", b"first")
        assert not storage.create("new", b"second")
        assert storage.read("new") == b"first"
        assert storage.read_range("new", 1, 3) == b"ir"
        found = storage.read_versioned("new")
        assert found is not None
        version = storage.swap("new", b"third", found[1])
        assert version is not None
        assert storage.swap("new", b"fourth", found[1]) is None
        storage.replace("other", b"x")
        assert storage.list("") == ["new", "other"]
        storage.remove("other")

        clean = behind(storage, s3_server)
        assert clean.list("") == ["new"]
        assert clean.read("new") == b"third"


def test_a_swap_that_was_heard_and_not_answered_is_ours(s3_server: S3Server) -> None:
    puts = ["", "cut after", "cut after", ""]

    def plan(asked: Asked) -> Fault:
        return puts[asked.tries - 1] if asked.method == "PUT" else ""  # type: ignore[return-value]

    with faulty(s3_server, plan) as faults:
        storage = place(faults)
        storage.create("lease", b"1")
        found = storage.read_versioned("lease")
        assert found is not None

        version = storage.swap("lease", b"2", found[1])

        assert version is not None
        now = storage.read_versioned("lease")
        assert now == (b"2", version)
        assert len(faults.of("lease", "PUT")) == 4


def test_waits_grow_and_the_third_try_is_not_at_once(s3_server: S3Server) -> None:
    with faulty(s3_server, first(4, "slow down", "PUT")) as faults:
        place(faults).create("one", b"x")

    times = [asked.at for asked in faults.of("one", "PUT")]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == 5
    assert times[2] - times[0] >= 0.3
    # A scheduler may add to a gap what it likes; each is drawn from above what the last one's was.
    assert gaps[3] > gaps[0]


def test_a_store_that_stays_slow_is_named_with_the_object(s3_server: S3Server) -> None:
    with faulty(s3_server, first(10**6, "slow down", "PUT")) as faults:
        storage = place(faults, budget_s=2)

        with pytest.raises(
            StorageError, match="503 Service Unavailable, SlowDown; tried"
        ) as told:
            storage.create("one", b"x")

    assert told.value.fields["path"] == f"{storage.url}/one"
    assert behind(storage, s3_server).size("one") is None


@pytest.mark.parametrize("single_put_bytes", [objects.SINGLE_PUT_BYTES, 1])
def test_half_an_upload_is_never_seen(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, single_put_bytes: int
) -> None:
    """In one request as in parts: what fails in its middle leaves what was there before."""
    monkeypatch.setattr(objects, "SINGLE_PUT_BYTES", single_put_bytes)
    monkeypatch.setattr(objects, "CHUNK_BYTES", 5 * MIB)
    seen: list[int | None] = []
    clean: list[ObjectStorage] = []

    def plan(asked: Asked) -> Fault:
        if asked.method != "PUT" or not clean:
            return ""
        seen.append(clean[0].size("big"))
        return "cut before" if asked.tries > 2 or single_put_bytes > 1 else ""

    content = secrets.token_bytes(MIB) * 20
    with faulty(s3_server, plan) as faults:
        storage = place(faults, budget_s=1)
        storage.replace("big", b"old")
        clean.append(behind(storage, s3_server))
        draft = open_draft(storage, "big")
        draft.write(content)

        with pytest.raises(StorageError):
            draft.finish()

        draft.abandon()
        assert clean[0].read("big") == b"old"
        assert set(seen) == {3}
        clean.clear()
        good = open_draft(storage, "big")
        good.write(content)
        good.finish()
        assert behind(storage, s3_server).read("big") == content


CHILD = """
import sys
from rowmill.storage import open_storage
from rowmill.storage.drafts import open_draft
draft = open_draft(open_storage(sys.argv[1]), "big")
draft.write(b"x" * (64 << 20))
draft.finish()
"""


def test_a_killed_upload_leaves_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    """Killed between the first byte of the upload and its answer, nothing is there, nor on the temporary disk."""

    def never_through(asked: Asked) -> Fault:
        return "cut before" if asked.method == "PUT" else ""

    with faulty(s3_server, never_through) as faults:
        url = f"s3://faults/killed/{secrets.token_hex(4)}"
        variables = {**faults.server.environment, "TMPDIR": str(tmp_path)}
        child = subprocess.Popen([sys.executable, "-c", CHILD, url], env=environment(variables))
        try:
            wait_until(lambda: bool(faults.of("/big", "PUT")), "an upload under way")
        finally:
            child.kill()
            child.wait()

    assert s3_server.store("faults", url[len("s3://faults/") :]).list().collect() == []
    assert list(tmp_path.iterdir()) == []


def test_a_full_temporary_disk_is_told(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Plan = lambda _: ""  # noqa: E731
    with faulty(s3_server, plan) as faults:
        monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")

        with pytest.raises(StorageError, match=r"`/proc/nowhere`: No such file"):
            open_draft(place(faults), "big")
