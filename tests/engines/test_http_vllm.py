"""Over vLLM's own server, and beside vLLM's own `run-batch`: the same answers, the same fields."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.engines.orphans import end_group

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("vllm")

START_S = 400.0
FLAGS = [
    "--served-model-name",
    "m",
    "--enforce-eager",
    "--max-model-len",
    "512",
    "--dtype",
    "float32",
]
ENVIRONMENT = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
QUESTIONS = ["Name a colour.", "Count to three.", "Say hello."]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.hf_folders import smollm2_folder

    return smollm2_folder(tmp_path_factory.mktemp("models") / "smollm2")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        {
            "custom_id": f"c{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "m",
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": 8,
                **({"logprobs": True, "top_logprobs": 2} if i else {}),
            },
        }
        for i, question in enumerate(QUESTIONS)
    ]
    file = tmp_path_factory.mktemp("source") / "in.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *FLAGS]
    process = subprocess.Popen(
        [sys.executable, *words, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    root = f"http://127.0.0.1:{port}"
    try:
        wait_for(root, process)
        yield root
    finally:
        end_group(process.pid)
        process.wait()


def wait_for(root: str, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_S
    while True:
        assert process.poll() is None
        assert time.monotonic() < give_up_at
        try:
            urllib.request.urlopen(f"{root}/health").close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
        else:
            return


def run_batch(source: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    words = ["-m", "rowmill", "run-batch", "-i", str(source), "-o", str(out), *options]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return records(out)


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [r["response"]["body"]["choices"][0]["message"]["content"] for r in found]


def shape(value: Any, path: str = "") -> set[str]:
    """Paths of all fields."""
    if isinstance(value, dict):
        return set().union(*(shape(part, f"{path}.{name}") for name, part in value.items()))
    if isinstance(value, list) and value:
        return shape(value[0], f"{path}[]")
    return {path}


def test_the_server_of_vllm_answers_streamed_and_not(
    tmp_path: Path, source: Path, url: str
) -> None:
    flags = ["--url", url, "--model", "m"]

    whole = run_batch(source, tmp_path / "whole.jsonl", *flags)
    streamed = run_batch(source, tmp_path / "streamed.jsonl", *flags, "--stream")

    assert texts(whole) == texts(streamed)
    for record in (*whole, *streamed):
        body = record["response"]["body"]
        assert ("length", 8) == (
            body["choices"][0]["finish_reason"],
            body["usage"]["completion_tokens"],
        )


def test_the_same_file_gives_the_same_lines_as_vllms_own(
    tmp_path: Path, source: Path, model: Path
) -> None:
    theirs = tmp_path / "theirs.jsonl"
    flags = ["--model", str(model), *FLAGS]
    words = ["-m", "vllm.entrypoints.openai.run_batch", "-i", str(source), "-o", str(theirs)]
    subprocess.run(
        [sys.executable, *words, *flags], check=True, env=ENVIRONMENT, capture_output=True
    )

    ours = run_batch(source, tmp_path / "ours.jsonl", *flags)

    assert [r["custom_id"] for r in records(theirs)] == [r["custom_id"] for r in ours]
    assert texts(records(theirs)) == texts(ours)
    assert [shape(r) for r in records(theirs)] == [shape(r) for r in ours]
