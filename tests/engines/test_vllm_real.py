"""The vLLM adapter with the real library: one engine for all tests of rows, and its own front end beside it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rowmill.config import EngineConfig
from rowmill.engines import vllm
from rowmill.engines.orphans import end_group
from rowmill.engines.vllm_arguments import ARGUMENTS
from rowmill.rows import Outcome, Prompts, Sampling
from rowmill.testing import check_engine
from rowmill.tokens import Tokenizer, open_tokenizer
from tests.engines.feeds import answers_of
from tests.engines.vllm_names import installed, names_in

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]
pytest.importorskip("torch")
pytest.importorskip("vllm")

GREEDY = Sampling(temperature=0)
CAPITAL = "The capital of France is"
SEATS, CONTEXT = 32, 512
TEXTS = [
    CAPITAL,
    "Once upon a time there",
    "1, 2, 3, 4,",
    "Water is made of",
    "caf\u00e9 \u4f60\u597d \U0001f389\U0001f389",
    "Write one emoji: \U0001f600\U0001f601\U0001f602",
    "def add(a, b):\n",
    "x",
]


class Kept(vllm.Vllm):
    """A vLLM that stays open for the next test."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    from tests.engines.hf_folders import smollm2_folder

    folder = smollm2_folder(tmp_path_factory.mktemp("models") / "smollm2")
    return EngineConfig.model_validate(
        {
            "name": "vllm",
            "model": str(folder),
            "dtype": "float32",
            "enforce_eager": True,
            "cpu_kv_gib": 1,
            "max_model_len": CONTEXT,
            "seats": SEATS,
        }
    )


@pytest.fixture(scope="module")
def opened(engine: EngineConfig) -> Iterator[vllm.Vllm]:
    found = vllm.open(engine)
    assert isinstance(found, vllm.Vllm)
    yield found
    found.close()


@pytest.fixture(params=["direct", "public"])
def model(opened: vllm.Vllm, request: pytest.FixtureRequest) -> vllm.Vllm:
    opened._port._is_direct = request.param == "direct"
    return Kept(
        opened._port,
        limits=opened.limits,
        vocabulary=opened._vocabulary,
        texts=opened._texts,
    )


@pytest.fixture(scope="module")
def tokenizer(engine: EngineConfig) -> Tokenizer:
    found = open_tokenizer(engine)
    assert found is not None
    return found


def prompts_of(
    tokenizer: Tokenizer, texts: list[str], *samplings: Sampling, max_tokens: int = 8
) -> Prompts:
    ids, stops = tokenizer.encode_batch(texts, add_special=False)
    each, count = list(samplings) or [GREEDY], len(texts)
    which = list(range(count)) if len(each) > 1 else [0] * count
    return Prompts(list(range(count)), ids, stops, [max_tokens] * count, each, which, [], [])


def ask(
    model: vllm.Vllm,
    tokenizer: Tokenizer,
    texts: list[str],
    *samplings: Sampling,
    max_tokens: int = 8,
) -> list[Outcome]:
    prompts = prompts_of(tokenizer, texts, *samplings, max_tokens=max_tokens)
    return answers_of(model, prompts)


def test_limits_are_those_of_the_open_engine(opened: vllm.Vllm) -> None:
    limits = opened.limits

    assert (CONTEXT, SEATS) == (limits.max_model_tokens, limits.seats)
    assert limits.kv_tokens > 10_000
    assert limits.about.startswith("vLLM 0.")
    assert limits.about.endswith(": smollm2")


def test_vllm_keeps_the_contract(
    model: vllm.Vllm, engine: EngineConfig, tokenizer: Tokenizer
) -> None:
    adapter = SimpleNamespace(
        open=lambda _: model, check_options=vllm.check_options, declare=vllm.declare
    )
    samplings = [GREEDY, Sampling(stop=("a",)), GREEDY, Sampling(temperature=9), GREEDY]
    rows = prompts_of(tokenizer, TEXTS[:5], *samplings)
    # bfloat16 rounds as its batches fall.
    outcomes = check_engine(adapter, engine, rows=rows, agree=0.6)

    assert ["ok", "ok", "ok", "error", "ok"] == [outcome.status for outcome in outcomes]


def test_greedy_answers_are_those_of_vllm_itself(
    model: vllm.Vllm, engine: EngineConfig, tokenizer: Tokenizer, alone: list[dict[str, Any]]
) -> None:
    sampling = Sampling(temperature=0, return_token_ids=True)
    outcomes = ask(model, tokenizer, TEXTS, sampling, max_tokens=24)

    assert [row["ids"] for row in alone] == [o.choices[0].token_ids for o in outcomes]
    assert [row["text"] for row in alone] == [outcome.text for outcome in outcomes]
    assert [row["finish_reason"] for row in alone] == [o.finish_reason for o in outcomes]


@pytest.fixture(scope="module")
def alone(
    engine: EngineConfig, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("alone")
    ids, answers, log = folder / "ids.json", folder / "answers.json", folder / "log"
    prompts = prompts_of(tokenizer, TEXTS)
    ids.write_text(json.dumps([part.tolist() for part in prompts.row_ids()]))
    command = [sys.executable, "-m", "tests.engines.vllm_alone", engine.model, "24"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, str(ids), str(answers)], stdout=out, stderr=out, start_new_session=True
        )
    process.wait()
    end_group(process.pid)
    assert answers.exists(), log.read_text("utf-8", "replace")[-2000:]
    found: list[dict[str, Any]] = json.loads(answers.read_bytes())
    return found


def test_cut_characters_end_a_text_as_vllm_s_own_decoding_does(
    opened: vllm.Vllm, model: vllm.Vllm, tokenizer: Tokenizer
) -> None:
    """Text that is decoded by vLLM (a stop string is set that never comes) and text that is decoded here."""
    never = Sampling(temperature=1.5, seed=5, stop=("\x00never",))
    plain = Sampling(temperature=1.5, seed=5)
    texts = [f"{text} {i}" for i in range(4) for text in TEXTS[3:6]]
    for max_tokens in (1, 2, 3, 17):
        theirs = ask(model, tokenizer, texts, never, max_tokens=max_tokens)
        ours = ask(model, tokenizer, texts, plain, max_tokens=max_tokens)

        assert [outcome.text for outcome in theirs] == [outcome.text for outcome in ours]


def test_stop_string_ends_an_answer_and_is_none_of_it(
    model: vllm.Vllm, tokenizer: Tokenizer
) -> None:
    found = ask(model, tokenizer, ["1, 2, 3, 4,"], Sampling(temperature=0, stop=(" 6",)))[0]

    assert (" 5,", "stop") == (found.text, found.finish_reason)


def test_samples_are_counted_all(model: vllm.Vllm, tokenizer: Tokenizer) -> None:
    sampling = Sampling(temperature=1.5, n=3, seed=7, return_token_ids=True, logprobs=2)
    first, again = ask(model, tokenizer, [CAPITAL] * 2, sampling, max_tokens=5)
    ids = [choice.token_ids or [] for choice in first.choices]

    assert [0, 1, 2] == [choice.index for choice in first.choices]
    assert sum(map(len, ids)) == first.output_tokens
    assert first.choices[0].text == first.text
    assert 2 == len((first.choices[0].logprobs or [])[0]["top"])
    assert ids == [choice.token_ids for choice in again.choices]
    assert json.loads(json.dumps(first.choices[0].logprobs, allow_nan=False))


def test_greedy_samples_are_equal(model: vllm.Vllm, tokenizer: Tokenizer) -> None:
    found = ask(model, tokenizer, [CAPITAL], Sampling(temperature=0, n=2))[0]

    assert [found.text] * 2 == [choice.text for choice in found.choices]
    assert 16 == found.output_tokens


def test_seed_of_a_row_is_the_same_in_any_company(
    model: vllm.Vllm, tokenizer: Tokenizer
) -> None:
    sampling = Sampling(temperature=1.5, seed_per_row=True)
    together = ask(model, tokenizer, [CAPITAL] * 4, sampling)
    alone_ = ask(model, tokenizer, [CAPITAL], sampling)

    assert alone_[0].text == together[0].text
    assert len({outcome.text for outcome in together}) > 1


@pytest.mark.parametrize(
    "choices",
    [(" yes", " no"), (' a "quoted" \\ choice\nof two lines',), ("caf\u00e9 \U0001f389",)],
)
def test_answer_is_one_of_the_choices_however_long(
    model: vllm.Vllm, tokenizer: Tokenizer, choices: tuple[str, ...]
) -> None:
    found = ask(
        model, tokenizer, [CAPITAL], Sampling(temperature=0, choices=choices), max_tokens=1
    )[0]

    assert found.text in choices
    assert "stop" == found.finish_reason


def test_schema_and_pattern_are_followed(model: vllm.Vllm, tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    held = [
        Sampling(temperature=0, schema=json.dumps(schema)),
        Sampling(temperature=0, regex="[0-9]{3}-[a-z]"),
    ]
    first, second = ask(model, tokenizer, ["JSON: ", "Code: "], *held, max_tokens=60)

    assert {"a"} == set(json.loads(str(first.text)))
    assert "-" == str(second.text)[3]
    assert str(second.text)[:3].isdigit()


ODD = {
    "unknown type": Sampling(schema='{"type": "wrong"}'),
    "no JSON": Sampling(schema="{"),
    "dangling": Sampling(schema='{"$ref": "#/$defs/none"}'),
    "look-behind": Sampling(schema='{"type": "string", "pattern": "(?<=a)b"}'),
    "open bracket": Sampling(regex="(["),
    "back reference": Sampling(regex="(a)\\1"),
    "impossible": Sampling(schema='{"type": "integer", "minimum": 5, "maximum": 1}'),
    "self": Sampling(schema='{"$ref": "#"}'),
    "empty": Sampling(schema="{}"),
    "not": Sampling(schema='{"not": {}}'),
    "false": Sampling(schema="false"),
    "deep": Sampling(schema='{"items": ' * 80 + "{}" + "}" * 80),
    "many": Sampling(schema=json.dumps({"enum": [f"value {i}" for i in range(3000)]})),
    "hot": Sampling(temperature=100),
    "many words": Sampling(logprobs=900),
    "penalty": Sampling(presence_penalty=5),
    "samples": Sampling(n=10**6),
    "no adapter": Sampling(lora="none"),
}


def test_row_that_vllm_refuses_fails_alone(model: vllm.Vllm, tokenizer: Tokenizer) -> None:
    """Good rows stand between the odd ones, and are answered as if alone."""
    samplings = [GREEDY]
    for odd in ODD.values():
        samplings += [odd, GREEDY]
    outcomes = ask(model, tokenizer, [CAPITAL] * len(samplings), *samplings)
    bad = dict(zip(ODD, outcomes[1::2], strict=True))

    assert {"ok"} == {outcome.status for outcome in outcomes[::2]}
    assert 1 == len({outcome.text for outcome in outcomes[::2]})
    for name in ("unknown type", "no JSON", "look-behind", "open bracket", "hot", "no adapter"):
        assert "error" == bad[name].status, name
    for outcome in bad.values():
        assert (outcome.status == "ok") == (outcome.error is None)


def test_prompt_that_cannot_be_computed_fails_alone(
    model: vllm.Vllm, tokenizer: Tokenizer
) -> None:
    good = tokenizer.encode_batch([CAPITAL], add_special=False)[0]
    parts = [np.full(CONTEXT, 5, np.uint32), good, np.array([10**6], np.uint32)]
    stops = np.cumsum([len(part) for part in parts])
    prompts = Prompts(
        [0, 1, 2], np.concatenate(parts), stops, [4] * 3, [GREEDY], [0] * 3, [], []
    )
    outcomes = answers_of(model, prompts)

    assert ["too_long", None, "invalid"] == [outcome.error_kind for outcome in outcomes]


def test_answer_fills_the_context_where_nothing_limits_it(
    model: vllm.Vllm, tokenizer: Tokenizer
) -> None:
    sampling = Sampling(temperature=0, ignore_eos=True)
    ids = np.full(CONTEXT - 20, 5, np.uint32)
    prompts = Prompts([0], ids, np.array([len(ids)]), [0], [sampling], [0], [], [])
    found = answers_of(model, prompts)[0]

    assert (20, "length") == (found.output_tokens, found.finish_reason)


def test_tokens_that_were_cached_are_counted(
    opened: vllm.Vllm, model: vllm.Vllm, tokenizer: Tokenizer
) -> None:
    text = "A shared beginning of some length. " * 40
    ask(model, tokenizer, [text])
    found = ask(model, tokenizer, [text])[0]

    assert found.cached_tokens >= 128
    if opened._port._is_direct:
        assert opened.counters()["hit_rate"] > 0


def test_every_error_of_vllm_is_mapped() -> None:
    """An error that a request can cause is a refusal; what else there is, is the engine's end."""
    import vllm.exceptions
    import vllm.v1.engine.exceptions as engine_side

    from rowmill.engines.vllm_port import refusals

    ends = {"VLLMError", "VLLMServerError", "GenerationError", "RetryableRequestError"}
    servers = {
        "GracefulHTTPError",
        "QueueOverflowError",
        "MaxQueuedTokensError",
        "ProfilerAlreadyActiveError",
    }
    named = dict(inspect.getmembers(vllm.exceptions, inspect.isclass))
    ours = {
        name: kind
        for name, kind in named.items()
        if issubclass(kind, Exception) and kind.__module__ == vllm.exceptions.__name__
    }
    unmapped = {name for name, kind in ours.items() if not issubclass(kind, refusals())}

    assert unmapped <= ends | servers
    assert not issubclass(engine_side.EngineDeadError, refusals())


def test_stored_names_are_those_of_the_installed_vllm() -> None:
    assert names_in(installed()) - ARGUMENTS == set()
