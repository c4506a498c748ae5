"""Images through the real vLLM: all ways they may come, what is wrong with some, and a run that is killed in the middle."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("vllm")
pytest.importorskip("PIL")

from rowmill.engines.orphans import end_group  # noqa: E402 - behind what may be absent
from rowmill.engines.vllm_reader import open_reader  # noqa: E402
from rowmill.media.tokens import image_tokens  # noqa: E402 - behind what may be absent
from rowmill.rows import Outcome  # noqa: E402
from tests.cases.command import kill, results, rowmill, start  # noqa: E402
from tests.cases.endpoint import wait_until  # noqa: E402
from tests.media.pictures_of import bomb, png  # noqa: E402
from tests.media.servers import site  # noqa: E402

SIZES = [(40, 60), (100, 60), (300, 20), (20, 300), (56, 56), (1, 1), (640, 480)]
LIMIT_S = 400.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.hf_images import image_folder

    return image_folder(tmp_path_factory.mktemp("models") / "tiny-images")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, size in enumerate(SIZES):
        (folder / f"{i}.png").write_bytes(png(*size, (30 * i, 200, 10)))
    return folder


def words(model: Path, source: Path, out: Path, **sets: Any) -> list[str]:
    settings = {
        "engine.dtype": "float32",
        "engine.enforce_eager": True,
        "engine.cpu_kv_gib": 1,
        "engine.max_model_len": 512,
        "engine.seats": 8,
        "sampling.temperature": 0,
        "sampling.max_tokens": 6,
        "sampling.ignore_eos": True,
        "sampling.return_token_ids": True,
        **sets,
    }
    arguments = [str(source), "-o", str(out), "--engine", "vllm", "--model", str(model)]
    for name, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value)
        arguments += ["--set", f"{name}={text}"]
    return arguments


def answered(model: Path, source: Path, out: Path, **sets: Any) -> list[dict[str, Any]]:
    done = rowmill("run", words(model, source, out, **sets), limit_s=LIMIT_S)
    assert done.code in (0, 4), done.stderr
    return results(out)


def lines(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def chat(id: str, url: str, text: str = "what?") -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": url}}
    parts = [image, {"type": "text", "text": text}]
    return {"id": id, "messages": [{"role": "user", "content": parts}]}


def ids_of(record: dict[str, Any]) -> list[int]:
    return list(record["rowmill_choices"][0]["token_ids"])


@pytest.fixture
def by_path(tmp_path: Path, pictures: Path, model: Path) -> list[dict[str, Any]]:
    rows = [{"id": i, "photo": f"{i}.png"} for i in range(len(SIZES))]
    source = lines(tmp_path / "paths.jsonl", rows)
    sets = {"prompt": "what?", "media.images": "photo", "media.folder": str(pictures)}
    return answered(model, source, tmp_path / "paths", **sets)


def test_all_ways_give_the_same_answers_and_the_tokens_that_were_planned(
    tmp_path: Path, pictures: Path, model: Path, by_path: list[dict[str, Any]]
) -> None:
    files = [(pictures / f"{i}.png").read_bytes() for i in range(len(SIZES))]
    table = pa.table({"photo": pa.array(files, pa.binary()), "id": list(range(len(SIZES)))})
    pq.write_table(table, tmp_path / "in.parquet")
    sets = {"prompt": "what?", "media.images": "photo"}
    tabled = answered(model, tmp_path / "in.parquet", tmp_path / "table", **sets)
    pages = {f"/{i}.png": (200, content, "") for i, content in enumerate(files)}
    with site(pages) as server:
        rows = [chat(f"u{i}", f"http://{server.host}/{i}.png") for i in range(len(SIZES))]
        coded = [f"data:image/png;base64,{b64encode(content).decode()}" for content in files]
        rows += [chat(f"d{i}", url) for i, url in enumerate(coded)]
        source = lines(tmp_path / "mixed.jsonl", rows)
        mixed = answered(
            model, source, tmp_path / "mixed", **{"media.hosts": json.dumps([server.host])}
        )
        assert len(SIZES) == sum(server.asked.values())

    urls, inline = mixed[: len(SIZES)], mixed[len(SIZES) :]
    expected = [(ids_of(r), r["rowmill_prompt_tokens"], r["rowmill_media"]) for r in by_path]
    for others in (tabled, urls, inline):
        found = [(ids_of(r), r["rowmill_prompt_tokens"], r["rowmill_media"]) for r in others]
        assert expected == found
    count = image_tokens(str(model))
    assert count.is_exact
    text = by_path[0]["rowmill_prompt_tokens"] - count.count(*SIZES[0])
    assert [text + count.count(*size) for size in SIZES] == [
        record["rowmill_prompt_tokens"] for record in by_path
    ]
    assert len({tuple(ids) for ids, _, _ in expected}) > 1, "it does not look at images"


def test_bad_images_are_their_own_rows_failures(
    tmp_path: Path, pictures: Path, model: Path
) -> None:
    (pictures / "cut.png").write_bytes((pictures / "1.png").read_bytes()[:60])
    (pictures / "bomb.png").write_bytes(bomb())
    (pictures / "text.png").write_text("no image")
    names = ["1.png", "cut.png", "bomb.png", "text.png", "gone.png", "../in.jsonl", "2.png"]
    rows = [chat(name, name) for name in names]
    rows.append(chat("away", "http://127.0.0.1:9/x.png"))
    rows.append({"id": "many", "messages": [{"role": "user", "content": 16 * _part("6.png")}]})
    rows.append({"id": "text", "messages": [{"role": "user", "content": "no picture"}]})
    source = lines(tmp_path / "in.jsonl", rows)

    found = answered(model, source, tmp_path / "out", **{"media.folder": str(pictures)})

    told = {record["id"]: record["rowmill_error"] for record in found}
    assert [None] * 3 == [told[id_] for id_ in ("1.png", "2.png", "text")]
    expected = {
        "cut.png": "breaks off",
        "bomb.png": "40,000 x 40,000 pixels",
        "text.png": "no image that can be read",
        "gone.png": "no such file",
        "../in.jsonl": "leads out of `media.folder`",
        "away": "media.hosts",
        "many": "limit 512",
    }
    for id_, word in expected.items():
        assert word in told[id_], told[id_]


def _part(path: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": path}}]


def test_run_that_is_killed_is_finished_by_the_next(
    tmp_path: Path, pictures: Path, model: Path
) -> None:
    rows = [chat(str(i), f"{i % len(SIZES)}.png", f"what {i}?") for i in range(300)]
    source, out = lines(tmp_path / "in.jsonl", rows), tmp_path / "out"
    sets = {"media.folder": str(pictures), "run.task_rows": 50}

    process = start(words(model, source, out, **sets), tmp_path / "log")
    try:
        wait_until(
            lambda: process.poll() is not None or _num_answered(out) >= 60,
            "60 answers",
            patience_s=LIMIT_S,
        )
    finally:
        was_running = process.poll() is None
        kill(process)
    before = _num_answered(out)
    records = answered(model, source, out, **sets)

    assert was_running
    assert 60 <= before < 300
    assert [str(i) for i in range(300)] == [record["id"] for record in records]
    assert {"ok"} == {record["rowmill_status"] for record in records}
    digests = {record["rowmill_media"][0] for record in records}
    assert len(SIZES) == len(digests)


def _num_answered(out: Path) -> int:
    files = [file for file in (out / "segments").rglob("*") if file.is_file()]
    return sum(file.read_bytes().count(b"\n") for file in files)


def test_reasoning_and_tool_calls_are_read_out_of_answers(tmp_path: Path, model: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    messages = [{"role": "user", "content": "q"}]
    rows = [
        {"id": "called", "messages": messages, "tools": tools, "regex": _exactly(call)},
        {"id": "none", "messages": messages, "regex": _exactly(call)},
        {"id": "thought", "messages": messages, "regex": _exactly("<think>hm</think>ab")},
    ]
    source = lines(tmp_path / "in.jsonl", rows)
    sets = {"sampling.max_tokens": 80, "sampling.ignore_eos": False}

    found = answered(
        model,
        source,
        tmp_path / "out",
        **{
            **sets,
            "engine.tool_call_parser": "hermes",
            "reasoning.tags": '["<think>", "</think>"]',
        },
    )

    called, none, thought = found
    (tool_call,) = called["rowmill_tool_calls"]
    assert ("f", {"a": 1}) == (tool_call["name"], json.loads(tool_call["arguments"]))
    assert ("", "tool_calls") == (called["rowmill_text"], called["rowmill_finish_reason"])
    assert (call, []) == (none["rowmill_text"], none["rowmill_tool_calls"])
    assert ("hm", 2, "ab") == (
        thought["rowmill_reasoning"],
        thought["rowmill_reasoning_tokens"],
        thought["rowmill_text"],
    )
    source = lines(tmp_path / "cut.jsonl", [{"id": "cut", "messages": messages}])
    (cut,) = answered(
        model, source, tmp_path / "cut", **{"engine.reasoning_parser": "deepseek_r1"}
    )
    assert (None, "length") == (cut["rowmill_text"], cut["rowmill_finish_reason"])
    assert cut["rowmill_reasoning"]
    assert 6 == cut["rowmill_reasoning_tokens"] == cut["rowmill_output_tokens"]


def test_parsers_of_vllm_read_one_after_the_other(model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    texts = [f"<think>hm</think>so {call}", "<think>hm</think>ab", "<think>hm"]
    tools = '[{"type": "function", "function": {"name": "f", "parameters": {}}}]'
    reader = open_reader(
        SimpleNamespace(get_tokenizer=lambda: tokenizer), "deepseek_r1", "hermes"
    )
    assert reader is not None

    def read(text: str) -> Outcome:
        ids = tokenizer.encode(text, add_special_tokens=False)
        reason = "stop" if "</think>" in text else "length"
        outcome = Outcome(1, "ok", text=text, finish_reason=reason)
        return reader.read(outcome, [ids], tools)

    called, answered_, cut = map(read, texts)

    assert ("hm", "tool_calls") == (called.reasoning, called.finish_reason)
    assert [("f", {"a": 1})] == [(c.name, json.loads(c.arguments)) for c in called.tool_calls]
    assert "so" == (called.text or "").strip()
    assert ("hm", "ab", []) == (answered_.reasoning, answered_.text, answered_.tool_calls)
    assert answered_.reasoning_tokens
    assert ("hm", None, "length") == (cut.reasoning, cut.text, cut.finish_reason)


def _exactly(text: str) -> str:
    return "".join(f"[{c}]" if c in "{}()[]." else c for c in text)


def test_parser_that_vllm_does_not_have_is_refused_before_a_row_is_read(
    tmp_path: Path, model: Path
) -> None:
    source = tmp_path / "gone.jsonl"

    done = rowmill(
        "check", words(model, source, tmp_path / "out", **{"engine.tool_call_parser": "hermse"})
    )

    assert 2 == done.code
    assert "`hermse`, which the vLLM installed does not have" in done.stderr


@pytest.fixture
def url(model: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--served-model-name", "m", "--enforce-eager", "--max-model-len", "512"]
    flags += ["--dtype", "float32", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    process = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                str(model),
            ),
            *(*flags, "--host", "127.0.0.1", "--port", str(port)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"},
        start_new_session=True,
    )

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
        except (urllib.error.URLError, ConnectionError):
            return process.poll() is not None
        return True

    try:
        wait_until(answers, "the server", patience_s=LIMIT_S)
        assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        end_group(process.pid)
        process.wait()


def test_server_of_vllm_is_shown_the_same_images(
    tmp_path: Path, pictures: Path, model: Path, url: str
) -> None:
    (pictures / "cut.png").write_bytes((pictures / "1.png").read_bytes()[:60])
    rows = [chat(name, name) for name in ("0.png", "1.png", "cut.png", "6.png")]
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    messages = [{"role": "user", "content": "q"}]
    asked = {"regex": _exactly(call), "max_tokens": 80}
    rows.append({"id": "called", "messages": messages, "tools": tools, **asked})
    source, out = lines(tmp_path / "in.jsonl", rows), tmp_path / "out"
    arguments = [str(source), "-o", str(out), "--url", url, "--model", "m"]
    sets = {"kind": "chat", "media.folder": str(pictures), "sampling.temperature": 0}
    for name, value in {**sets, "sampling.max_tokens": 6}.items():
        arguments += ["--set", f"{name}={value}"]

    done = rowmill("run", arguments, limit_s=LIMIT_S)
    found = {record["id"]: record for record in results(out)}

    assert 4 == done.code, done.stderr
    assert "breaks off" in found["cut.png"]["rowmill_error"]
    count = image_tokens(str(model)).count
    tokens = [found[f"{i}.png"]["rowmill_prompt_tokens"] - count(*SIZES[i]) for i in (0, 1, 6)]
    assert 1 == len(set(tokens))
    assert 3 == len({found[f"{i}.png"]["rowmill_media"][0] for i in (0, 1, 6)})
    (tool_call,) = found["called"]["rowmill_tool_calls"]
    assert ("f", {"a": 1}) == (tool_call["name"], json.loads(tool_call["arguments"]))
    assert "tool_calls" == found["called"]["rowmill_finish_reason"]
    assert tool_call["id"]
