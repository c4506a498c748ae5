"""`run-batch --retry`: what a batch file holds no answer to is asked again, whoever made the file."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import OK, REFUSED, SOME_FAILED, environment, kill, rowmill
from tests.cases.compare import read_records
from tests.cases.endpoint import Serve, wait_until

IDS = "abcdef"


def asked(id: str | None, **body: Any) -> bytes:
    row = {"method": "POST", "url": "/v1/completions", "body": {"model": "m", **body}}
    return json.dumps({"custom_id": id, **row} if id else row).encode() + b"\n"


def answered(id: str | None) -> bytes:
    """As vLLM writes them, blanks and order of fields included, so that writing anew would show."""
    body = {"choices": [{"text": "kept", "index": 0, "finish_reason": "stop"}]}
    response = {"status_code": 200, "request_id": f"vllm-batch-{id}", "body": body}
    return (
        json.dumps(
            {"id": "vllm-1", "custom_id": id, "response": response, "error": None}
        ).encode()
        + b"\n"
    )


def vllm_error(id: str | None) -> bytes:
    told = {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}
    response = {"status_code": 400, "request_id": f"vllm-batch-{id}", "body": None}
    return (
        json.dumps(
            {"id": "vllm-2", "custom_id": id, "response": response, "error": told}
        ).encode()
        + b"\n"
    )


def openai_error(id: str) -> bytes:
    body = {"error": {"message": "slow down", "type": "rate_limit", "code": "429"}}
    response = {"status_code": 429, "request_id": "req_1", "body": body}
    return (
        json.dumps(
            {"id": "batch_req_1", "custom_id": id, "response": response, "error": None}
        ).encode()
        + b"\n"
    )


def expired(id: str) -> bytes:
    told = {"code": "batch_expired", "message": "the batch took too long"}
    return (
        json.dumps(
            {"id": "batch_req_2", "custom_id": id, "response": None, "error": told}
        ).encode()
        + b"\n"
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"".join(asked(id, prompt=f"row {id}") for id in IDS))
    return path


def again(source: Path, out: Path, *options: str) -> Any:
    words = ["-i", str(source), "-o", str(out), "--model", "m", "--engine", "echo", "--retry"]
    return rowmill("run-batch", [*words, "--set", "engine.tokenizer=bytes", *options])


def text_of(line: bytes) -> str:
    return str(json.loads(line)["response"]["body"]["choices"][0]["text"])


def left_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_lines_of_vllm_that_failed_are_replaced_where_they_stand(
    tmp_path: Path, source: Path, suffix: str
) -> None:
    out = tmp_path / f"out.{suffix}"
    lines = [
        answered("a"),
        vllm_error("b"),
        answered("c"),
        b'{"id": "vllm-3", "custom_id": "d", "resp',
    ]
    packed = gzip.compress if suffix.endswith("gz") else bytes
    out.write_bytes(packed(b"".join(lines)))

    finished = again(source, out)

    assert finished.code == OK, finished.stderr
    assert (4, 2) == (finished.told["asked"], finished.told["kept"])
    text = out.read_bytes()
    found = (gzip.decompress(text) if suffix.endswith("gz") else text).splitlines(keepends=True)
    assert list(IDS) == [json.loads(line)["custom_id"] for line in found]
    assert [lines[0], lines[2]] == [found[0], found[2]]
    assert ["row b", "row d", "row e", "row f"] == [text_of(found[i]) for i in (1, 3, 4, 5)]
    assert {"in.jsonl", out.name} == left_of(tmp_path)
    assert (6, 0) == (
        rowmill("status", [str(out)]).told["ok"],
        rowmill("status", [str(out)]).told["failed"],
    )


def test_errors_of_openai_move_to_the_answers(tmp_path: Path, source: Path) -> None:
    source.write_bytes(source.read_bytes().replace(b'"row f"', b"[]"))
    out, errors = tmp_path / "out.jsonl", tmp_path / "out.errors.jsonl"
    kept = answered("d") + answered("b")
    out.write_bytes(kept)
    errors.write_bytes(openai_error("f") + expired("c") + openai_error("a") + expired("e"))

    finished = again(source, out)

    assert finished.code == SOME_FAILED, finished.stderr
    found = out.read_bytes()
    assert found.startswith(kept)
    added = [json.loads(line) for line in found[len(kept) :].splitlines()]
    assert ["a", "c", "e"] == [line["custom_id"] for line in added]
    (left,) = read_records(errors)
    assert ("f", "invalid") == (left["custom_id"], left["error"]["code"])
    assert {"in.jsonl", "out.jsonl", "out.errors.jsonl"} == left_of(tmp_path)

    source.write_bytes(source.read_bytes().replace(b"[]", b'"row f"'))
    assert again(source, out).code == OK
    assert (b"", 6) == (errors.read_bytes(), len(read_records(out)))


def test_an_error_that_was_left_behind_by_a_kill_is_tidied(
    tmp_path: Path, source: Path
) -> None:
    out, errors = tmp_path / "out.jsonl", tmp_path / "out.errors.jsonl"
    out.write_bytes(b"".join(answered(id) for id in IDS))
    before = out.read_bytes()
    errors.write_bytes(openai_error("c"))

    finished = again(source, out)

    assert (OK, 0, b"") == (finished.code, finished.told["asked"], errors.read_bytes())
    assert before == out.read_bytes()


def test_a_bad_line_is_known_by_the_id_that_can_be_read(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    bad = [b'{"custom_id": "nul", "prompt": "\0"}\n', b'{"custom_id": "nan", "prompt": NaN}\n']
    source.write_bytes(b"".join([asked("a", prompt="one"), *bad]))
    lines = [vllm_error("nan"), vllm_error("nul"), answered("a")]
    out.write_bytes(b"".join(lines))

    finished = again(source, out)

    assert finished.code == SOME_FAILED, finished.stderr
    found = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [line["custom_id"] for line in found] == ["nan", "nul", "a"]
    words = [line["error"]["error"]["message"] for line in found[:2]]
    assert "`NaN` is no JSON value" in words[0]
    assert "NUL" in words[1]


def test_lines_without_ids_of_their_own_are_told_by_their_order(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [asked("a", prompt="one"), asked(None, prompt="two"), asked("a", prompt="three")]
    rows += [b'{"custom_id": "cut", "me\n', asked(None, prompt="five")]
    source.write_bytes(b"".join(rows))
    lines = [vllm_error("a"), answered(None), answered("a"), vllm_error(None), vllm_error(None)]
    out.write_bytes(b"".join(lines))

    finished = again(source, out)

    assert finished.code == SOME_FAILED, finished.stderr
    found = out.read_bytes().splitlines(keepends=True)
    assert (lines[1], lines[2]) == (found[1], found[2])
    assert ("one", "five") == (text_of(found[0]), text_of(found[4]))
    assert "unreadable" == json.loads(found[3])["error"]["error"]["type"]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "is not there"),
        (answered("a") + answered("z"), "does not say which"),
        (answered("y") + answered("z"), "no id of"),
        ("run", "has its run beside it"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, made: bytes | str | None, words: str
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(asked("a", prompt="one") + asked("a", prompt="two"))
    if isinstance(made, bytes):
        out.write_bytes(made)
    elif made:
        rowmill("run-batch", ["-i", str(source), "-o", str(out), "--engine", "echo"])
    before = out.read_bytes() if made else b""

    finished = again(source, out)

    assert finished.code == REFUSED
    assert words in finished.stderr
    assert before == (out.read_bytes() if made else b"")
    assert not list(tmp_path.glob("*.retry"))


def test_retry_of_a_batch_file_alone_names_the_command(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_bytes(answered("a") + vllm_error("b"))

    finished = rowmill("retry", [str(out)])

    assert finished.code == REFUSED
    assert f"rowmill run-batch -i INPUT -o {out} --model NAME --retry" in finished.stderr


@pytest.mark.slow
def test_a_killed_retry_is_gone_on_with(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(delay_s=0.02, is_logged=False)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    ids = [f"r{i}" for i in range(400)]
    rows = [asked(id, prompt=f"row {id}").replace(b'"m"', b'"tiny"') for id in ids]
    source.write_bytes(b"".join(rows))
    before = b"".join(answered(id) if i % 2 else vllm_error(id) for i, id in enumerate(ids))
    out.write_bytes(before)
    words = [
        "-i",
        str(source),
        "-o",
        str(out),
        "--model",
        "tiny",
        "--url",
        endpoint.url,
        "--retry",
    ]
    words += ["--set", "engine.seats=4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rowmill", "run-batch", *words],
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        wait_until(lambda: endpoint.hits >= 60, "some requests")
        segments = "out.jsonl.retry/*.run/segments/*/*.jsonl"
        wait_until(lambda: any(tmp_path.glob(segments)), "answers")
    finally:
        process.send_signal(signal.SIGKILL)
        kill(process)
    assert before == out.read_bytes()

    finished = rowmill("run-batch", words)

    assert finished.code == OK, finished.stderr
    assert finished.told["asked"] < 200
    assert endpoint.hits < 250
    found = out.read_bytes().splitlines(keepends=True)
    assert ids == [json.loads(line)["custom_id"] for line in found]
    assert before.splitlines(keepends=True)[1::2] == found[1::2]
    assert {"in.jsonl", "out.jsonl"} <= left_of(tmp_path)
    assert not list(tmp_path.glob("*.retry"))
