"""Engine `http` and `run-batch` over llama.cpp's own server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.config import EngineConfig
from rowmill.engines import http
from rowmill.rows import Sampling
from rowmill.testing import check_engine
from tests.cases.command import ROOT, SOME_FAILED, environment, rowmill
from tests.cases.compare import read_records
from tests.engines.endpoint import wire_prompts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TOKENS = 4


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.llama_server"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment({"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}),
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(900)
def test_http_keeps_the_contract_before_llama_cpp(url: str) -> None:
    engine = EngineConfig.model_validate({"name": "http", "url": url, "seats": 2})
    texts = ["The capital of France is", "1, 2, 3,", "Once upon a time", "Water is made of"]
    rows = wire_prompts(texts, samplings=[Sampling(temperature=0)], max_tokens=4)

    # Slots of that server share a batch, and round as it falls; it leaves out two things that vLLM's server does.
    check_engine(
        http,
        engine,
        rows=rows,
        agree=0.75,
        leave_out=("return_token_ids", "choices"),
        patience_s=600,
    )


def batch_file(folder: Path) -> Path:
    colour = [{"role": "user", "content": "Name a colour."}]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": colour}),
        ("/v1/completions", {"prompt": "The capital of France is", "logprobs": 1}),
        ("/v1/completions", {"prompt": "1, 2, 3,"}),
        ("/v1/embeddings", {"input": "a"}),
    ]
    lines = [
        {
            "custom_id": str(i),
            "method": "POST",
            "url": url,
            "body": {**body, "temperature": 0, "max_tokens": TOKENS},
        }
        for i, (url, body) in enumerate(asked)
    ]
    file = folder / "in.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_llama_cpp_answers_a_batch_streamed_and_not(tmp_path: Path, url: str) -> None:
    source = batch_file(tmp_path)
    found = []
    for name in ("whole", "streamed"):
        out = tmp_path / f"{name}.jsonl"
        words = ["-i", str(source), "-o", str(out), "--url", url]
        finished = rowmill("run-batch", [*words, *(["--stream"] if name == "streamed" else [])])
        assert finished.code == SOME_FAILED, finished.stderr
        assert {} == finished.told["retries"]
        found.append(read_records(out))

    whole, streamed = found
    assert texts(whole) == texts(streamed)
    assert "Paris" in texts(whole)[1]
    for chat, plain, _, embedded in found:
        assert "chat.completion" == chat["response"]["body"]["object"]
        assert TOKENS == plain["response"]["body"]["usage"]["completion_tokens"]
        assert 501 == embedded["response"]["status_code"]
        assert embedded["error"]["error"]["message"]


def texts(records: list[dict[str, Any]]) -> list[str]:
    choices = [record["response"]["body"]["choices"][0] for record in records[:3]]
    return [choice.get("text") or choice["message"]["content"] for choice in choices]
