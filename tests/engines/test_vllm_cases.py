"""Cases 35 and 62 with the real vLLM: bad schemas among good rows, and answers that do not depend on company."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS
from tests.engines.test_vllm_run import FINISHED_WITH_FAILED_ROWS, Run

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

UNUSABLE = {"bad-type", "text", "null", "bad-ref", "bad-regex", "bad-kind", "not-object"}
SAME_TOKENS = 3
"""Kernels round differently, and later tokens follow from earlier ones."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of random weights, or the folder named for a machine without what that is made of."""
    if given := os.environ.get("ROWMILL_TEST_MODEL"):
        return Path(given)
    from tests.engines.hf_folders import random_folder

    return random_folder(tmp_path_factory.mktemp("models") / "random")


def rows_of(case: str) -> list[dict[str, Any]]:
    text = (INPUTS / case / "input.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_bad_schemas_end_neither_the_engine_nor_the_job(tmp_path: Path, model: Path) -> None:
    run = Run(tmp_path, model, rows_of("35"), "max_tokens = 16\n")
    run.start()

    assert FINISHED_WITH_FAILED_ROWS == run.finish(), run.words()

    found = run.results()
    assert 14 == len(found)
    failed = {name: row["rowmill_error"] for name, row in found.items() if row["rowmill_error"]}
    assert failed.keys() >= UNUSABLE
    assert all("response_format" in failed[name] for name in UNUSABLE)
    assert {"good", "json-object", "after"}.isdisjoint(failed)
    assert all(row["rowmill_seconds"] < 60 for row in found.values())
    assert "died" not in run.words()


def test_answers_do_not_depend_on_the_rows_beside_them(tmp_path: Path, model: Path) -> None:
    rows = rows_of("62")
    expected = {row["id"]: greedy(model, row["prompt"]) for row in rows}

    alone = asked(tmp_path / "alone", model, rows, seats=1)
    together = asked(tmp_path / "together", model, rows, seats=5)
    turned = asked(tmp_path / "turned", model, rows[::-1], seats=5)

    for name, (prompt_tokens, ids, text) in expected.items():
        for found in (alone[name], together[name], turned[name]):
            assert prompt_tokens == found["rowmill_prompt_tokens"]
            assert ids[:SAME_TOKENS] == token_ids(found)[:SAME_TOKENS]
        if token_ids(alone[name]) == ids:
            assert text == alone[name]["rowmill_text"]
        assert token_ids(alone[name])[:SAME_TOKENS] == token_ids(together[name])[:SAME_TOKENS]
    agreed = sum(token_ids(alone[name]) == ids for name, (_, ids, _) in expected.items())
    assert agreed >= 4, f"{agreed} of {len(expected)} rows as transformers answers them alone"


def asked(
    folder: Path, model: Path, rows: list[dict[str, Any]], *, seats: int
) -> dict[str, dict[str, Any]]:
    folder.mkdir()
    more = """
max_tokens = 12
ignore_eos = true
return_token_ids = true
[plan]
order = "file"
"""
    raw = [{**row, "raw": True} for row in rows]
    run = Run(folder, model, raw, more, engine=f"seats = {seats}\n", dtype="float32")
    run.start()

    assert 0 == run.finish(), run.words()
    return run.results()


def token_ids(record: dict[str, Any]) -> list[int]:
    found: list[int] = record["rowmill_choices"][0]["token_ids"]
    return found


def greedy(model: Path, prompt: str) -> tuple[int, list[int], str]:
    """Prompt tokens, 12 greedy tokens and their text, by transformers, one row alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    network.generation_config.eos_token_id = None
    out = network.generate(ids, max_new_tokens=12, min_new_tokens=12, do_sample=False)
    answer = out[0, ids.shape[1] :].tolist()
    return ids.shape[1], answer, tokenizer.decode(answer, skip_special_tokens=True)
