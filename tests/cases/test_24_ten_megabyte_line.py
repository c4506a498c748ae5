"""Case 24: lines of 10 MB are rows like others: carried, or refused by the model's limit, within bounds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, TINY, Finished, check_whole, job, start
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.memory import MIB, MemoryWatch

EXPECTED = read_records(INPUTS / "24" / "expected.jsonl")
KNOWN = {"engine.tokenizer": str(TINY), "engine.max_model_len": 512}
LONGEST_WORDS = 500


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {f"k{i}": i for i in range(500_000)}
    rows: list[dict[str, Any]] = [
        {"id": "small-1", "prompt": "before"},
        {"id": "big-prompt", "prompt": "lorem ipsum " * 875_000},
        {"id": "big-meta", "prompt": "short prompt, large baggage", "blob": "QUJD" * 2_600_000},
        {"id": "many-keys", "prompt": "many keys", "meta": keys},
        {"id": "small-2", "prompt": "after"},
    ]
    file = tmp_path_factory.mktemp("big") / "input.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("format_", [pytest.param("jsonl", marks=pytest.mark.slow), "parquet"])
def test_ten_megabytes_are_carried_or_refused_and_not_sent(
    tmp_path: Path, serve: Serve, source: Path, format_: str
) -> None:
    endpoint, out, log = serve(max_model_len=512), tmp_path / "out", tmp_path / "words"
    sets = {**KNOWN, "output.format": format_}
    began = time.monotonic()
    process = start(job(source, out, endpoint=endpoint, sets=sets), log)
    watch = MemoryWatch(process.pid)
    try:
        code = process.wait(100)
    finally:
        peak = watch.close()
        process.kill()
    seconds = time.monotonic() - began
    words = log.read_text("utf-8").splitlines()

    records = check_whole(Finished(code, words[-1], "\n".join(words)), out, 5)

    assert code == SOME_FAILED
    assert differences(EXPECTED, records) == []
    assert endpoint.hits == 4
    found = by_id(records)
    assert len(found["big-prompt"]["rowmill_error"]) < LONGEST_WORDS
    assert max(map(len, words[:-1])) < LONGEST_WORDS
    assert found["big-meta"]["blob"] == "QUJD" * 2_600_000
    assert len(found["big-prompt"]["prompt"]) == 10_500_000
    assert found["many-keys"]["meta"] == {f"k{i}": i for i in range(500_000)}
    assert peak < 600 * MIB
    assert seconds < 30
