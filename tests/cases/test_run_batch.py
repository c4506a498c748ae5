"""`rowmill run-batch`: the flags, lines and output of `vllm run-batch`, and what it adds."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rowmill.batch import Target, check_target
from rowmill.batch.bodies import Served
from rowmill.batch.lines import LineIds, batch_line
from rowmill.errors import BadOutput
from rowmill.rows import Choice, Outcome
from tests.cases.command import OK, SOME_FAILED, environment, kill, rowmill
from tests.cases.compare import read_records
from tests.cases.endpoint import Serve, wait_until
from tests.cases.on_s3 import new_prefix
from tests.servers.s3_server import S3Server

VLLM = Served("vllm", "m", 7)
FIELDS_OF_VLLM = {
    *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint"),
    *("usage", "prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params"),
    *("ec_transfer_params", "metrics"),
}
"""Of a chat body that `vllm run-batch` 0.32.0 wrote."""
MESSAGE_OF_VLLM = {
    *("role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"),
}


def line(id: str, **body: Any) -> str:
    url = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    row = {"custom_id": id, "method": "POST", "url": url, "body": {"model": "m", **body}}
    return json.dumps(row) + "\n"


def batch(source: Path, out: Path, *options: str) -> Any:
    words = ["-i", str(source), "-o", str(out), "--model", "m", "--engine", "echo"]
    return rowmill("run-batch", [*words, "--set", "engine.tokenizer=bytes", *options])


def texts(records: list[dict[str, Any]]) -> list[str]:
    return [record["response"]["body"]["choices"][0]["text"] for record in records]


def test_files_of_every_kind_go_in_and_come_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("a", prompt="one", max_tokens=3))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line("b", prompt="two").encode()))
    body = {"prompt": "six", "max_tokens": 3}
    rows = [
        {"custom_id": id, "method": "POST", "url": "/v1/completions", "body": json.dumps(body)}
        for id in ("c", "d")
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    first, second = (["-i", str(tmp_path / name)] for name in ("b.jsonl.gz", "c.parquet"))

    lines = batch(tmp_path / "a.jsonl", tmp_path / "out.jsonl", *first, *second)
    table = batch(tmp_path / "a.jsonl", tmp_path / "out.parquet", *first, *second)

    assert (OK, OK) == (lines.code, table.code), lines.stderr
    records = read_records(tmp_path / "out.jsonl")
    assert ["a", "b", "c", "d"] == [record["custom_id"] for record in records]
    assert ["one", "two", "six", "six"] == texts(records)
    found = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert ["a", "b", "c", "d"] == [row["custom_id"] for row in found]
    assert "six" == json.loads(found[3]["response"]["body"])["choices"][0]["text"]
    assert {None} == {row["error"] for row in found}


def test_flags_of_vllm_are_settings_of_the_engine(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("a", prompt="x" * 40) + line("b", prompt="x", model="alias"))
    flags = ["--max-model-len", "32", "--max-num-seqs=3", "--served-model-name", "alias"]

    finished = batch(source, out, *flags, "--enable-metrics", "--delay-s", "0.01")

    assert finished.code == SOME_FAILED, finished.stderr
    assert "`--enable-metrics` changes nothing" in finished.stderr
    assert "set     seats: 3: given" in finished.stderr
    long, aliased = read_records(out)
    assert "41 prompt tokens" in long["error"]["error"]["message"] or "limit 32" in str(long)
    assert 400 == long["response"]["status_code"]
    assert "alias" == aliased["response"]["body"]["model"]
    wrong = batch(source, tmp_path / "other.jsonl", "--max-model-lenn", "32")
    assert 2 == wrong.code
    assert "max_model_len" in wrong.stderr


def test_repeated_ids_and_bad_lines_refuse_nothing(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = line("a", prompt="one")
    source.write_text(good + good + '{"custom_id": "cut", "meth\n' + "7\n")

    finished = batch(source, out)

    assert finished.code == SOME_FAILED
    records = read_records(out)
    assert ["a", "a", None, None] == [record["custom_id"] for record in records]
    assert [200, 400, 400, 400] == [r["response"]["status_code"] for r in records]


def test_a_bad_line_stands_under_the_id_that_can_be_read(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(
        line("a", prompt="one").encode()
        + b'{"custom_id": "nan", "prompt": NaN}\n'
        + b'{"custom_id": "", "id": 1.50, "prompt": "nul\0"}\n'
        + b'{"custom_id": null, "id": "latin", "prompt": "caf\xe9"}\n'
        + b'{"custom_id": "\\ud800", "prompt": "x"}\n'
    )
    (tmp_path / "more.csv").write_text("custom_id,note,prompt\nshort,x\n")

    finished = batch(source, out, "-i", str(tmp_path / "more.csv"))

    assert finished.code == SOME_FAILED, finished.stderr
    found = [record["custom_id"] for record in read_records(out)]
    assert found == ["a", "nan", 1.5, "latin", None, "short"]
    assert b'"custom_id":1.50,' in out.read_bytes()
    again = batch(source, out, "-i", str(tmp_path / "more.csv"))
    assert (again.code, again.told["asked"]) == (SOME_FAILED, 0)


def test_the_id_column_of_the_job_is_that_of_a_batch_file(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        '{"nr": 7, "id": "a", "prompt": "x"}\n{"nr": 8, "id": "a", "prompt": NaN}\n'
    )

    finished = batch(source, out, "--set", "validate.id_column=nr")

    assert finished.code == SOME_FAILED, finished.stderr
    assert [record["custom_id"] for record in read_records(out)] == [7, 8]


def test_the_same_command_writes_the_same_bytes_and_asks_nothing(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(line(f"r{i}", prompt=f"row {i}") for i in range(20)))
    assert batch(source, out).code == OK
    before = out.read_bytes()
    out.unlink()

    again = batch(source, out)

    assert (again.code, again.told["asked"]) == (OK, 0)
    assert before == out.read_bytes()


@pytest.mark.slow
def test_a_killed_batch_is_gone_on_with(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(delay_s=0.02, is_logged=False)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(line(f"r{i}", prompt=f"row {i}") for i in range(400)))
    source.write_text(source.read_text().replace('"m"', '"tiny"'))
    words = ["-i", str(source), "-o", str(out), "--model", "tiny", "--url", endpoint.url]
    words += ["--set", "engine.seats=4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rowmill", "run-batch", *words],
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        wait_until(lambda: endpoint.hits >= 100, "some requests")
        wait_until(lambda: any(tmp_path.glob("out.jsonl.run/segments/*/*.jsonl")), "answers")
    finally:
        process.send_signal(signal.SIGKILL)
        kill(process)
    assert not out.exists()

    finished = rowmill("run-batch", words)

    assert (finished.code, len(read_records(out))) == (OK, 400), finished.stderr
    assert finished.told["asked"] < 400
    assert endpoint.hits < 500


def test_retry_asks_what_failed_and_writes_the_file_again(tmp_path: Path, serve: Serve) -> None:
    plan = tmp_path / "plan.json"
    action = {"type": "status", "code": 400}
    plan.write_text(json.dumps([{"contains": "bad", "times": 1, "action": action}]))
    endpoint = serve(plan=plan)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        (line("a", prompt="good") + line("b", prompt="bad")).replace('"m"', '"tiny"')
    )
    words = ["-i", str(source), "-o", str(out), "--model", "tiny", "--url", endpoint.url]
    assert rowmill("run-batch", words).code == SOME_FAILED
    failed = read_records(out)[1]
    assert "scripted fault" == failed["error"]["error"]["message"]

    finished = rowmill("retry", [str(out)])

    assert finished.code == OK, finished.stderr
    assert [None, None] == [record["error"] for record in read_records(out)]
    assert 3 == endpoint.hits
    assert "finished" == rowmill("status", [str(out)]).told["state"]
    told = rowmill("status", [str(out)], as_json=False).stdout
    (result,) = [line.split()[1] for line in told.splitlines() if line.startswith("result")]
    assert Path(result).is_file()


def test_a_body_made_here_has_the_fields_of_vllm() -> None:
    logprobs = [{"token": " a\n", "logprob": -0.5, "top": {" a\n": -0.5, "b": None}}]
    choices = [Choice(0, "x", "stop", logprobs=logprobs), Choice(1, "y", "length")]
    outcome = Outcome(5, "ok", "x", "stop", choices, prompt_tokens=3, output_tokens=4)
    source = b'{"custom_id": 7, "url": "/v1/chat/completions", "body": {}}'

    id = LineIds().of(source)
    made = json.loads(msgspec.json.encode(batch_line(source, id, outcome, VLLM, "token")))

    assert 7 == made["custom_id"]
    body = made["response"]["body"]
    assert FIELDS_OF_VLLM == set(body)
    first, second = body["choices"]
    assert {"index", "message", "logprobs", "finish_reason"} < set(first)
    assert {"stop_reason", "token_ids", "routed_experts"} < set(first)
    assert MESSAGE_OF_VLLM == set(first["message"])
    (token,) = first["logprobs"]["content"]
    assert [32, 97, 10] == token["bytes"]
    assert [" a\n", "b"] == [top["token"] for top in token["top_logprobs"]]
    assert ("y", "length", None) == (
        second["message"]["content"],
        second["finish_reason"],
        second["logprobs"],
    )
    assert 7 == body["usage"]["total_tokens"]


@pytest.mark.parametrize(
    ("out", "options", "words"),
    [
        ("in.jsonl", [], "is the input"),
        (".", [], "is a folder"),
        ("no/such/out.jsonl", [], "not there"),
        ("out.csv", [], "neither lines nor Parquet"),
        ("out.jsonl", ["--errors", "in.jsonl"], "is the input"),
        ("out.jsonl", ["--errors", "out.jsonl"], "answers and errors both"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source = Path("in.jsonl")
    source.write_text(line("a", prompt="one"))
    target = Target(out, options[1] if options else "", "vllm", "m")

    with pytest.raises(BadOutput, match=words):
        check_target(target, ["in.jsonl"])

    assert ["in.jsonl"] == [path.name for path in Path().iterdir()]


def test_the_input_is_never_written_over(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(line("a", prompt="one"))
    before = source.read_bytes()

    finished = batch(source, source)

    assert 2 == finished.code
    assert before == source.read_bytes()
    assert ["in.jsonl"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_input_and_output_may_lie_in_a_bucket(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    there, lines = new_prefix(s3_server), tmp_path / "in.jsonl"
    rows = [
        line("a", prompt="first text"),
        line("b", prompt=[]),
        line("c", prompt="third text"),
    ]
    lines.write_text("".join(rows))
    there.put("in.jsonl", lines.read_bytes())
    source, target = f"{there.url}/in.jsonl", f"{there.url}/out.{suffix}"
    options = ["--engine", "echo", "--set", "engine.tokenizer=bytes", "--dialect", "openai"]
    words = ["-i", source, "-o", target, "--model", "m", *options]

    first, again = rowmill("run-batch", words), rowmill("run-batch", words)

    assert (SOME_FAILED, SOME_FAILED) == (first.code, again.code)
    assert 0 == again.told["asked"]
    names = set(there.names())
    assert {f"out.{suffix}", f"out.errors.{suffix}"} <= names
    here = tmp_path / f"out.{suffix}"
    here.write_bytes(there.get(here.name))
    found = (
        pq.read_table(here).to_pylist()
        if suffix == "parquet"
        else [json.loads(text) for text in here.read_text().splitlines()]
    )
    assert ["a", "c"] == [record["custom_id"] for record in found]

    clash = rowmill("run-batch", ["-i", source, "-o", source, "--model", "m", *options])

    assert clash.code == 2
    assert "is the input" in clash.stderr
