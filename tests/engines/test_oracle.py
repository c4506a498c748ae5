"""Greedy answers of the other engines, beside those of transformers in float32: for which share of rows they agree.

A share is stated, and held to: what is off is rounding, as long as few rows are off. Run with `-s`, the shares are told.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowmill.config import EngineConfig
from rowmill.engines import demo_model, open_engine
from rowmill.rows import Prompts, Sampling
from rowmill.tokens import open_tokenizer
from tests.engines.feeds import answers_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parent.parent.parent
ROWS, TOKENS = 48, 12
FULL = Sampling(temperature=0, ignore_eos=True, return_token_ids=True)


def reviews(model: str) -> Prompts:
    """The first reviews of the examples, of two languages, cut to lengths that differ."""
    lines = (ROOT / "examples/reviews.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in [*lines[: ROWS // 2], *lines[-ROWS // 2 :]]]
    texts = [text[: 12 + 3 * i] for i, text in enumerate(texts)]
    tokenizer = open_tokenizer(EngineConfig(name="transformers", model=model))
    assert tokenizer is not None
    ids, stops = tokenizer.encode_batch(texts, add_special=False)
    return Prompts([*range(ROWS)], ids, stops, [TOKENS] * ROWS, [FULL], [0] * ROWS, [], [])


def answers(rows: Prompts, **settings: Any) -> list[list[int]]:
    outcomes = answers_of(open_engine(EngineConfig.model_validate(settings)), rows)
    gc.collect()
    assert ["ok"] * ROWS == [outcome.status for outcome in outcomes]
    return [outcome.choices[0].token_ids or [] for outcome in outcomes]


def share(name: str, wanted: list[list[int]], found: list[list[int]]) -> tuple[float, float]:
    """Of rows that agree in all tokens, and in the first three."""
    whole = sum(a == b for a, b in zip(wanted, found, strict=True)) / ROWS
    begun = sum(a[:3] == b[:3] for a, b in zip(wanted, found, strict=True)) / ROWS
    print(f"\n{name}: {whole:.1%} of {ROWS} rows agree in {TOKENS} tokens, {begun:.1%} in 3")  # noqa: T201
    return whole, begun


Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    from tests.engines import hf_folders

    makers = {"smollm2": hf_folders.smollm2_folder, "random": hf_folders.random_folder}
    made: dict[str, Path] = {}

    def found(name: str) -> Path:
        if name not in made:
            made[name] = makers[name](tmp_path_factory.mktemp("models") / name)
        return made[name]

    return found


@pytest.fixture(scope="module")
def oracle(folder: Folder) -> Callable[[str], list[list[int]]]:
    known: dict[str, list[list[int]]] = {}

    def found(name: str) -> list[list[int]]:
        if name not in known:
            model = str(folder(name))
            known[name] = answers(reviews(model), name="transformers", model=model, threads=1)
        return known[name]

    return found


@pytest.mark.vllm
@pytest.mark.parametrize("name", ["random"])
def test_vllm_in_float32_agrees_on_nearly_all_rows(
    name: str, folder: Folder, oracle: Callable[[str], list[list[int]]]
) -> None:
    pytest.importorskip("vllm")
    model = str(folder(name))
    settings = {
        "dtype": "float32",
        "enforce_eager": True,
        "cpu_kv_gib": 1,
        "max_model_len": 512,
    }
    found = answers(reviews(model), name="vllm", model=model, seats=16, **settings)

    whole, _ = share(f"vLLM, {name}", oracle(name), found)
    assert whole >= 0.95


def test_llama_cpp_agrees_on_most_rows(
    folder: Folder, oracle: Callable[[str], list[list[int]]]
) -> None:
    """Its weights have 4 bits, from which the others' were unpacked; it rounds what it multiplies them with to 8."""
    pytest.importorskip("xllamacpp")
    rows = reviews(str(folder("smollm2")))
    found = answers(
        rows, name="llamacpp", model=str(demo_model()), max_model_len=512, threads=1
    )

    whole, begun = share("llama.cpp, smollm2", oracle("smollm2"), found)
    assert whole >= 0.4
    assert begun >= 0.8
