"""Cases 43, 45, 46, 47, 54, 58 and 61 with the output, or both ends, in an S3 bucket of a real server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from rowmill.storage import ObjectStorage, objects
from tests.cases.command import (
    DIED,
    INPUTS,
    OK,
    REFUSED,
    SOME_FAILED,
    STOPPED,
    Arguments,
    check_refused,
    command_line,
    environment,
    kill,
    rowmill,
    start,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Endpoint, Serve, wait_until
from tests.cases.memory import MIB, MemoryWatch
from tests.cases.on_s3 import Prefix, new_prefix, s3_job, whole_records
from tests.cases.small_disk import remount, small_disk
from tests.cases.test_54_memory import write_batch_lines
from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.slow
SEATS = 16
LIMIT_S = 120
EXPECTED_43 = read_records(INPUTS / "43" / "expected.jsonl")
SOURCE_45 = INPUTS / "45" / "input.jsonl"
EXPECTED_45 = read_records(INPUTS / "45" / "expected.jsonl")


@pytest.fixture
def out(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Prefix:
    """A prefix of its own; started processes find the server as a user's would."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return new_prefix(s3_server)


def half_done(arguments: Arguments, endpoint: Endpoint, log: Path, *, hits: int) -> None:
    process = start(arguments, log)
    endpoint.wait_hits(hits, process)
    kill(process)


# 43: a resume asks what is not done


def test_three_kills_lose_no_row_and_repeat_few(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint = serve(delay_s=0.05)
    source = out.below("in")
    source.put_folder(INPUTS / "43" / "in")
    sets = {"run.checkpoint_s": 0.2}
    arguments = s3_job([source.url], out.below("run"), endpoint=endpoint, sets=sets)
    for hits in (50, 140, 260):
        half_done(arguments, endpoint, tmp_path / "words", hits=hits)

    finished = rowmill("run", arguments)

    records = whole_records(finished, out.below("run"), tmp_path / "out", 300)
    assert finished.code == OK
    assert differences(EXPECTED_43, records) == []
    # 16 rows of 0.05 s: 64 in the 0.2 s between checkpoints, and as many while one is written.
    assert endpoint.hits <= 300 + 3 * SEATS + 3 * 2 * 64


def test_failed_rows_are_done_until_retried(tmp_path: Path, serve: Serve, out: Prefix) -> None:
    faulty = serve(plan=INPUTS / "43" / "plan_400.json")
    arguments = s3_job(INPUTS / "43" / "in", out, endpoint=faulty)
    finished = rowmill("run", arguments)
    assert finished.code == SOME_FAILED
    assert faulty.hits == 300
    again = rowmill("run", arguments)
    assert again.code == SOME_FAILED
    assert again.told["engine_start_s"] == 0
    assert faulty.hits == 300
    faulty.close()
    healthy = serve(port=faulty.port)

    retried = rowmill("retry", [out.url])

    assert retried.code == OK, retried.stderr
    records = whole_records(rowmill("run", arguments), out, tmp_path / "out", 300)
    assert differences(EXPECTED_43, records) == []
    assert healthy.hits == 11


def test_changed_objects_of_the_input_are_refused_by_name(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint, source = serve(delay_s=0.02), out.below("in")
    source.put_folder(INPUTS / "43" / "in")
    arguments = s3_job([source.url], out.below("run"), endpoint=endpoint)
    half_done(arguments, endpoint, tmp_path / "words", hits=100)
    hits = endpoint.hits
    source.put_folder(INPUTS / "43" / "in_changed")

    words = check_refused(rowmill("run", arguments), endpoint=endpoint, hits=hits)

    assert all(f"`{name}.jsonl`" in words for name in ("f0", "f1", "f2"))


def test_an_object_changed_while_it_is_asked_ends_the_run(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    """By its version, although name and size are what they were: no answer goes to another row's columns."""
    endpoint, source = serve(delay_s=0.02), out.below("in")
    lines = [json.dumps({"id": i, "prompt": f"say {i:04d}"}) + "\n" for i in range(600)]
    source.put("f.jsonl", "".join(lines).encode())
    sets = {"run.task_rows": 200}
    arguments = s3_job([source.url], out.below("run"), endpoint=endpoint, sets=sets)
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(50, process)
    source.put("f.jsonl", "".join(reversed(lines)).encode())

    code = process.wait(LIMIT_S)

    words = (tmp_path / "words").read_text()
    assert code == DIED, words
    assert "f.jsonl" in words
    assert "put the old" in words
    assert out.below("run").names("results/") == []


# 45: two processes, one output


def test_a_second_start_is_refused_and_names_the_owner(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint = serve(delay_s=2.0)
    arguments = s3_job(SOURCE_45, out, endpoint=endpoint)
    first = start(arguments, tmp_path / "first")
    endpoint.wait_hits(1, first)

    began = time.monotonic()
    second = rowmill("run", arguments)
    seconds = time.monotonic() - began

    assert second.code == REFUSED
    assert seconds < 5
    assert first.poll() is None
    assert f"process {first.pid} on `{socket.gethostname()}`" in second.stderr
    assert first.wait(LIMIT_S) == OK
    records = whole_records(rowmill("run", arguments), out, tmp_path / "out", 150)
    assert differences(EXPECTED_45, records) == []
    assert endpoint.hits == 150


def test_of_two_starts_at_once_exactly_one_works(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    for i in range(5):
        endpoint, here = serve(delay_s=0.3, is_logged=False), out.below(str(i))
        arguments = s3_job(SOURCE_45, here, endpoint=endpoint)
        processes = [start(arguments, tmp_path / f"{i}-{n}") for n in range(2)]

        codes = sorted(process.wait(LIMIT_S) for process in processes)

        words = [(tmp_path / f"{i}-{n}").read_text() for n in range(2)]
        assert codes == [OK, REFUSED], words
        assert any("is in use by process" in told for told in words)
        finished = rowmill("run", arguments)
        records = whole_records(finished, here, tmp_path / f"out{i}", 150)
        assert differences(EXPECTED_45, records) == []
        assert endpoint.hits == 150
        endpoint.close()


def set_owner(out: Prefix, **changes: object) -> None:
    note = json.loads(out.get("leases/owner.json"))
    note["members"][0].update(changes)
    out.put("leases/owner.json", json.dumps(note).encode())


@pytest.mark.parametrize("note", ["as it was", "other host", "living process"])
def test_a_dead_owner_is_followed(tmp_path: Path, serve: Serve, out: Prefix, note: str) -> None:
    """At once where this machine can tell that it died, else when its note has stood still."""
    endpoint = serve(delay_s=0.05)
    sets = {"run.lease_s": 5}
    arguments = s3_job(SOURCE_45, out, endpoint=endpoint, sets=sets)
    half_done(arguments, endpoint, tmp_path / "words", hits=50)
    if note == "other host":
        set_owner(out, host="elsewhere", machine="elsewhere")
    if note == "living process":
        set_owner(out, pid=os.getpid())
    began = time.monotonic()

    finished = rowmill("run", arguments)

    assert finished.code == OK, finished.stderr
    records = whole_records(finished, out, tmp_path / "out", 150)
    assert differences(EXPECTED_45, records) == []
    waited = time.monotonic() - began
    assert waited > 5 if note == "other host" else waited < 30


def test_two_workers_of_one_token_share_the_rows(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint = serve(delay_s=0.2)
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": i, "prompt": f"say {i}"}) + "\n" for i in range(1200)]
    source.write_text("".join(lines))
    sets = {"run.task_rows": 50, "run.lease_s": 5, "validate.first_rows": 50}
    sets |= {"plan.window_rows": 16}
    arguments = s3_job(source, out, endpoint=endpoint, sets=sets)
    first = start(arguments, tmp_path / "first")
    endpoint.wait_hits(40, first)
    token = json.loads(out.get("leases/owner.json"))["token"]
    second = start([*arguments, "--join", token], tmp_path / "second")

    assert [first.wait(LIMIT_S), second.wait(LIMIT_S)] == [OK, OK]

    finished = rowmill("run", arguments)
    whole_records(finished, out, tmp_path / "out", 1200)
    assert endpoint.hits == 1200
    names = out.names("commits/")
    workers = {json.loads(out.get(name))["worker"].rpartition("-")[2] for name in names}
    assert workers == {str(first.pid), str(second.pid)}


# 46: the disk is full: of a run in a bucket, the temporary one


def test_a_full_temporary_disk_ends_the_run_and_a_resume_asks_nothing(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint = serve()
    source = tmp_path / "in.jsonl"
    row = {"prompt": "p", "copied": "x" * 10_000}
    lines = [json.dumps({"id": i, **row, "prompt": f"p{i}"}) + "\n" for i in range(400)]
    source.write_text("".join(lines))
    arguments = s3_job(source, out, endpoint=endpoint)
    with small_disk(tmp_path / "small", size="2m") as disk:
        changes = {"TMPDIR": str(disk)}

        failed = rowmill("run", arguments, changes=changes)

        assert failed.code == DIED
        assert f"`{disk}`: No space left on device" in failed.stderr
        assert len(failed.stderr.splitlines()) <= 20
        assert out.names("results/") == []
        assert "done.json" not in out.names()
        remount(disk, "size=64m")
        finished = rowmill("run", arguments, changes=changes)
        whole_records(finished, out, tmp_path / "out", 400)
        assert endpoint.hits == 400
        assert list(disk.iterdir()) == []


# 47: an output that cannot be


@pytest.mark.parametrize(
    ("output", "changes", "reason"),
    [
        ("s3://", {}, "is no address of an object store"),
        ("s3://cases/a/../b", {}, "is no address of an object store"),
        ("s3://AKIA:hush@cases/x", {}, "give them by the environment"),
        ("s3://cases/x", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ("s3://cases/x", {"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId"),
        ("s3://cases/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "error sending request"),
        ("s3://no-such-bucket/x", {}, "NoSuchBucket"),
        ("hdfs://cases/x", {}, "is no place that results can go to"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_anything_is_asked(
    serve: Serve, out: Prefix, output: str, changes: dict[str, str], reason: str
) -> None:
    endpoint = serve()
    arguments = s3_job(INPUTS / "47" / "input.jsonl", out, endpoint=endpoint)
    arguments[arguments.index("-o") + 1] = output
    began = time.monotonic()

    words = check_refused(
        rowmill("run", arguments, changes={"ROWMILL_STORE_RETRY_S": "3", **changes}),
        endpoint=endpoint,
    )

    assert reason in words
    assert "hush" not in words
    assert time.monotonic() - began < 10
    assert out.names() == []


def test_an_output_that_is_the_input_is_refused_and_the_input_stays(
    serve: Serve, out: Prefix
) -> None:
    endpoint = serve()
    content = (INPUTS / "47" / "input.jsonl").read_bytes()
    out.put("in/input.jsonl", content)
    for source, output in (
        ("in/input.jsonl", "in/input.jsonl"),
        ("in/input.jsonl", "in"),
        ("in", "in"),
        ("in", "in/out"),
        ("*/*.jsonl", "in"),
    ):
        arguments = s3_job([f"{out.url}/{source}"], out.below(output), endpoint=endpoint)

        check_refused(rowmill("run", arguments), endpoint=endpoint)

    assert out.names() == ["in/input.jsonl"]
    assert out.get("in/input.jsonl") == content


# 54: memory is bounded, answers are kept as they come


@pytest.mark.timeout(600)
def test_memory_stays_bounded(tmp_path: Path, out: Prefix) -> None:
    rows = 200_000
    file = write_batch_lines(tmp_path / "input.jsonl", rows)
    out.put("in/input.jsonl", file.read_bytes())
    file.unlink()
    sets = {"engine.tokenizer": "bytes", "engine.model": "tiny", "sampling.max_tokens": 16}
    sets |= {"engine.seats": 2000, "engine.delay_s": 0.1, "run.checkpoint_s": 2}
    arguments = s3_job([f"{out.url}/in"], out.below("run"), sets=sets)
    process = start(arguments, tmp_path / "words")
    watch = MemoryWatch(process.pid, own=True)
    try:
        code = process.wait(LIMIT_S)
    finally:
        peak = watch.close()
        kill(process)

    assert code == OK, (tmp_path / "words").read_text()
    counts = json.loads(out.get("run/done.json"))["counts"]
    assert counts["ok"] == rows
    assert peak < 600 * MIB


def test_an_interrupted_run_keeps_its_answers_and_asks_the_others_alone(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint = serve(delay_s=0.02, is_logged=False)
    source = write_batch_lines(tmp_path / "input.jsonl", 1500)
    sets = {"run.checkpoint_s": 0.5}
    arguments = s3_job(source, out, endpoint=endpoint, sets=sets)
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(300, process)
    wait_until(lambda: bool(out.names("segments/")), "answers in the store")
    process.send_signal(signal.SIGINT)

    code = process.wait(30)

    assert code == 130, (tmp_path / "words").read_text()
    hits, answered = endpoint.hits, endpoint.stats["status"]["200"]
    target = tmp_path / "export.jsonl"
    assert rowmill("export", [out.url, "-o", str(target)]).code == OK
    kept = len(read_records(target))
    assert kept >= 0.9 * answered
    whole_records(rowmill("run", arguments), out, tmp_path / "out", 1500)
    assert endpoint.hits == hits + 1500 - kept


# 58: a pod is taken


def test_a_preempted_run_ends_in_time_and_goes_on(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    case = INPUTS / "58"
    endpoint = serve(delay_s=0.05)
    sets = {"engine.seats": 8}
    arguments = s3_job(case / "input.jsonl", out, endpoint=endpoint, sets=sets)
    for hits in (90, 180, 270, 360, 450):
        process = start(arguments, tmp_path / "words")
        endpoint.wait_hits(hits, process)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 143
        assert time.monotonic() - began < 10

    finished = rowmill("run", arguments)

    records = whole_records(finished, out, tmp_path / "out", 500)
    assert differences(read_records(case / "expected.jsonl"), records) == []
    assert endpoint.hits <= 500 + 5 * 8


# 61: all rows fail


def test_a_job_that_nearly_all_fails_stops_early_and_says_so(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    endpoint = serve()

    finished = rowmill("run", s3_job(INPUTS / "61" / "big.jsonl", out, endpoint=endpoint))

    assert finished.code == STOPPED, finished.stderr
    assert endpoint.hits <= 200 + SEATS
    told = finished.told
    assert told["ok"] == 0
    assert told["not_done"] == 2000 - told["error"]
    target = tmp_path / "export.jsonl"
    assert rowmill("export", [out.url, "-o", str(target)]).code == OK
    assert len(read_records(target)) == told["error"]
    assert rowmill("status", [out.url]).told["state"] == "interrupted"
    small = s3_job(INPUTS / "61" / "input.jsonl", out.below("small"), endpoint=endpoint)
    ended = rowmill("run", small)
    records = whole_records(ended, out.below("small"), tmp_path / "out", 9)
    assert ended.code == SOME_FAILED
    assert differences(read_records(INPUTS / "61" / "expected.jsonl"), records) == []
    assert ended.told["errors"][0]["rows"] == 9


# What else is asked of a run in a bucket


def test_what_was_unpacked_outlives_the_process_that_unpacked_it(
    tmp_path: Path, serve: Serve, out: Prefix
) -> None:
    """Standard input is gone after a kill, and packed files were unpacked on a disk that may be gone too."""
    endpoint = serve(delay_s=0.02)
    lines = "".join(json.dumps({"id": i, "prompt": f"say {i}"}) + "\n" for i in range(400))
    (tmp_path / "in.json").write_text(f"[{','.join(lines.splitlines())}]")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    sets = {"run.checkpoint_s": 0.2}
    arguments = s3_job(Path("-"), out, endpoint=endpoint, sets=sets)
    with (tmp_path / "in.json").open("rb") as rows:
        process = subprocess.Popen(
            command_line("run", arguments),
            stdin=rows,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment({"TMPDIR": str(temporary)}),
            start_new_session=True,
        )
    endpoint.wait_hits(100, process)
    kill(process)
    assert len(list(temporary.glob("rowmill-spool-*"))) == 1
    assert out.names("spool/") == ["spool/00000.zst"]

    with (tmp_path / "in.json").open("rb") as rows:
        assert rows.read(1)  # it is not read a second time
    finished = rowmill("run", arguments, changes={"TMPDIR": str(temporary)})

    whole_records(finished, out, tmp_path / "out", 400)
    assert list(temporary.iterdir()) == []
    traced = rowmill("trace", [out.url, "stdin:7"])
    assert traced.code == OK


def test_an_export_may_go_to_an_object(tmp_path: Path, out: Prefix) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"id": {i}, "prompt": "p{i}"}}\n' for i in range(20)))
    assert rowmill("run", s3_job(source, out.below("run"))).code == OK

    exported = rowmill("export", [out.below("run").url, "-o", f"{out.url}/e.jsonl"])

    assert exported.code == OK, exported.stderr
    assert out.get("e.jsonl") == out.get("run/results/part-00000.jsonl")
    inside = rowmill("export", [out.below("run").url, "-o", f"{out.url}/run/results/e.jsonl"])
    assert "lies among the run's own files" in check_refused(inside)


def test_a_mended_copy_may_come_from_a_bucket(tmp_path: Path, out: Prefix) -> None:
    content = (INPUTS / "15" / "input.jsonl").read_bytes()
    out.put("in/a.jsonl", content)
    (tmp_path / "a.jsonl").write_bytes(content)
    options = ["--engine", "echo", "--set", "engine.tokenizer=bytes", "--fix"]

    here = rowmill("check", [str(tmp_path / "a.jsonl"), *options, str(tmp_path / "1")])
    there = rowmill("check", [f"{out.url}/in/a.jsonl", *options, str(tmp_path / "2")])

    assert there.code == here.code
    assert (tmp_path / "2/a.jsonl").read_bytes() == (tmp_path / "1/a.jsonl").read_bytes()


def test_what_a_killed_probe_left_is_removed_once_it_is_old(out: Prefix) -> None:
    storage = ObjectStorage(out.url, out.store)
    storage.create(".probe-1-dead", b"1")
    storage.create("run.json", b"{}")

    assert storage.sweep() == 0
    assert ".probe-1-dead" in out.names()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "STALE_S", -1.0)
        assert storage.sweep() == 1
    assert out.names() == ["run.json"]


def test_an_empty_folder_of_a_store_is_empty(tmp_path: Path, out: Prefix) -> None:
    """An object whose name is the prefix and a `/`; here one that is left when all in it was deleted."""
    out.put("gone", b"")
    out.store.delete("gone")
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"text": "a"}) + "\n")

    finished = rowmill("run", s3_job(source, out, "--prompt", "{text}"))

    assert finished.code == OK, finished.stderr
