"""The llama.cpp adapter: the real library with the demo model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import llamacpp, resolve
from rowmill.engines.llamacpp_ask import choices_grammar, read_sample, request
from rowmill.rows import Limits, Outcome, Prompts, Sampling
from rowmill.tokens import open_tokenizer
from tests.engines.feeds import answers_of

pytest.importorskip("xllamacpp")

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def engine() -> EngineConfig:
    try:
        return resolve(EngineConfig(max_model_len=512, seats=4, n_ctx=600))
    except errors.MissingExtra as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model(engine: EngineConfig) -> Iterator[llamacpp.Llama]:
    opened = llamacpp.open(engine)
    assert isinstance(opened, llamacpp.Llama)
    yield opened
    opened.close()


def ask(
    model: llamacpp.Llama,
    engine: EngineConfig,
    texts: list[str],
    *samplings: Sampling,
    max_tokens: int = 8,
) -> list[Outcome]:
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    ids, stops = tokenizer.encode_batch(texts, add_special=False)
    each = list(samplings) or [GREEDY]
    count = len(texts)
    which = list(range(count)) if len(each) > 1 else [0] * count
    prompts = Prompts(list(range(count)), ids, stops, [max_tokens] * count, each, which, [], [])
    held = llamacpp.Llama(model._server, model.limits)
    return answers_of(held, prompts)


CAPITAL = "The capital of France is"


def test_limits_come_from_the_file_and_the_settings(engine: EngineConfig) -> None:
    limits = llamacpp.declare(engine)
    own = llamacpp.declare(engine.model_copy(update={"max_model_len": None}))

    assert (512, 600, 4) == (limits.max_model_tokens, limits.kv_tokens, limits.seats)
    assert 600 == own.max_model_tokens


def test_missing_model_is_named_before_anything_is_loaded() -> None:
    found = llamacpp.check_options(EngineConfig(name="llamacpp", model="/no/such.gguf"))

    assert [
        "`engine.model`: there is no file `/no/such.gguf`; give the path of a GGUF file"
    ] == found


@pytest.mark.slow
def test_rows_are_answered_alike_alone_and_in_company(
    model: llamacpp.Llama, engine: EngineConfig
) -> None:
    texts = [CAPITAL, "Once upon a time there", "1, 2, 3, 4,", CAPITAL, "Water is made of"]
    together = ask(model, engine, texts)
    alone = ask(model, engine, texts[:1])

    assert {"ok"} == {outcome.status for outcome in together}
    assert {"length"} == {outcome.finish_reason for outcome in together}
    assert [8] * 5 == [outcome.output_tokens for outcome in together]
    assert " Paris" == str(alone[0].text)[:6]
    assert alone[0].text == together[0].text == together[3].text


@pytest.mark.slow
def test_more_tokens_than_the_cache_holds_wait_for_room(
    model: llamacpp.Llama, engine: EngineConfig
) -> None:
    texts = [f"{word} " * 160 for word in ("cat", "dog", "sun", "sea", "ice", "car")]
    outcomes = ask(model, engine, texts)

    assert {"ok"} == {outcome.status for outcome in outcomes}
    assert {1} == {outcome.attempts for outcome in outcomes}


class Overflowing:
    """Stands for llama.cpp with a full cache: says what that says at the first call of each row."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def handle_completions(self, asked: dict[str, Any]) -> dict[str, Any]:
        key = asked["prompt"][0]
        if key not in self.seen:
            self.seen.add(key)
            return {"error": {"code": 500, "message": "Context size has been exceeded."}}
        return {
            "choices": [{"text": "a", "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 1},
        }


def test_rows_that_overflow_the_cache_are_asked_again() -> None:
    limits = Limits(seats=2, kv_tokens=8, max_model_tokens=8)
    ids = np.array([7, 0, 8, 0, 9, 0], np.uint32)
    stops = np.array([2, 4, 6])
    prompts = Prompts([0, 1, 2], ids, stops, [4] * 3, [GREEDY], [0] * 3, [], [])
    outcomes = answers_of(llamacpp.Llama(Overflowing(), limits), prompts)

    assert [("ok", 2)] * 3 == [(outcome.status, outcome.attempts) for outcome in outcomes]


@pytest.mark.slow
def test_answer_is_one_of_the_choices_however_long(
    model: llamacpp.Llama, engine: EngineConfig
) -> None:
    choices = (
        ' a "quoted" \\ choice\nof two lines',
        " an entirely different caf\u00e9 \U0001f389",
    )
    for choice in choices:
        sampling = Sampling(temperature=0, choices=(choice,))
        outcome = ask(model, engine, [CAPITAL], sampling, max_tokens=1)[0]

        assert (choice, "stop") == (outcome.text, outcome.finish_reason)


@pytest.mark.slow
def test_samples_are_counted_all(model: llamacpp.Llama, engine: EngineConfig) -> None:
    sampling = Sampling(temperature=1.5, n=3, seed=7, return_token_ids=True, logprobs=2)
    first, again = ask(model, engine, [CAPITAL] * 2, sampling, max_tokens=5)
    ids = [choice.token_ids for choice in first.choices]

    assert [0, 1, 2] == [choice.index for choice in first.choices]
    assert sum(len(i or []) for i in ids) == first.output_tokens
    assert first.choices[0].text == first.text
    assert 2 == len((first.choices[0].logprobs or [])[0]["top"])
    assert 3 == len(again.choices)
    assert json.loads(json.dumps(first.choices[0].logprobs, allow_nan=False))


@pytest.mark.slow
def test_schema_is_followed(model: llamacpp.Llama, engine: EngineConfig) -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {"a": {"type": "boolean"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    )
    outcome = ask(
        model, engine, ["JSON: "], Sampling(temperature=0, schema=schema), max_tokens=60
    )[0]

    assert {"a"} == set(json.loads(str(outcome.text)))


@pytest.mark.slow
def test_text_ends_before_a_character_that_is_cut(
    model: llamacpp.Llama, engine: EngineConfig
) -> None:
    asked = request(open_ids(engine), GREEDY, max_tokens=1, index=0)
    result = model._server.handle_completions({**asked, "grammar": 'root ::= "\U0001f389"'})

    assert "\ufffd" == result["choices"][0]["text"]
    assert "" == read_sample(result, GREEDY, 0).choice.text


def open_ids(engine: EngineConfig) -> Any:
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    return tokenizer.encode_batch([CAPITAL], add_special=False)[0]


@pytest.mark.slow
def test_wrong_row_fails_alone(model: llamacpp.Llama, engine: EngineConfig) -> None:
    ids = open_ids(engine)
    prompts = Prompts([0, 1], ids, stops_of(ids), [4, 4], [GREEDY], [0, 0], [], [])
    outcomes = answers_of(llamacpp.Llama(model._server, model.limits), prompts)

    assert ["error", "ok"] == [outcome.status for outcome in outcomes]
    assert "invalid" == outcomes[0].error_kind
    assert "the prompt has no tokens" in str(outcomes[0].error)


def stops_of(ids: Any) -> Any:
    return np.array([0, len(ids)], np.int64)


def test_grammar_holds_each_choice_as_it_is() -> None:
    grammar = choices_grammar((' "a"', "b\\c", "d\ne\x01"))

    assert 'root ::= " \\"a\\"" | "b\\\\c" | "d\\ne\\x01"' == grammar


def test_answer_that_is_no_json_is_kept_as_it_came_under_a_schema() -> None:
    result = {
        "choices": [{"text": " Paris.", "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }

    sample = read_sample(result, Sampling(schema='{"type": "wrong"}'), 0)

    assert sample.choice.text == " Paris."


def test_module_needs_no_library_to_be_imported() -> None:
    code = "import sys, rowmill.engines.llamacpp; sys.exit('xllamacpp' in sys.modules)"
    source = str(Path(llamacpp.__file__).parents[2])

    assert (
        0 == subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}).returncode
    )
