"""The transformers adapter with the real library, on a CPU: what it answers, and what it answers whatever stands beside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill.config import EngineConfig
from rowmill.engines import transformers
from rowmill.rows import Outcome, Prompts, Sampling
from rowmill.testing import check_deaths, check_engine
from rowmill.tokens import open_tokenizer
from tests.engines.feeds import answers_of
from tests.engines.rows_of import id_prompts

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

GOLDEN = Path(__file__).parent.parent / "golden"
TINY = GOLDEN / "tiny_model"
CASE = GOLDEN / "cases" / "62-padding-changes-answers"
FULL = Sampling(temperature=0, ignore_eos=True, return_token_ids=True)
VOCABULARY = 264


def engine(**settings: Any) -> EngineConfig:
    return EngineConfig.model_validate(
        {"name": "transformers", "model": str(TINY), "threads": 1, **settings}
    )


def prompts(
    rows: list[list[int]], *samplings: Sampling, max_tokens: int | list[int] = 8
) -> Prompts:
    return id_prompts(rows, sampling=samplings or [FULL], max_tokens=max_tokens)


def ask(asked: Prompts, **settings: Any) -> list[Outcome]:
    return answers_of(transformers.open(engine(**settings)), asked)


def ids_of(outcomes: list[Outcome]) -> list[list[list[int] | None]]:
    return [[choice.token_ids for choice in outcome.choices] for outcome in outcomes]


def drawn_rows(count: int, seed: int, longest: int = 60) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [
        random.integers(3, VOCABULARY, int(length)).tolist()
        for length in random.integers(1, longest, count)
    ]


def no_pad(config: dict[str, Any]) -> None:
    config.pop("pad_token", None)


def pad_is_end(config: dict[str, Any]) -> None:
    config["pad_token"] = "</s>"


def as_it_is(config: dict[str, Any]) -> None:
    del config


@pytest.mark.parametrize("change", [as_it_is, pad_is_end, no_pad])
@pytest.mark.parametrize("seats", [1, 2, 5])
@pytest.mark.parametrize("order", [1, -1])
def test_padding_changes_no_answer(
    change: Callable[[dict[str, Any]], None], seats: int, order: int, tmp_path: Path
) -> None:
    model = shutil.copytree(TINY, tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_bytes())
    change(config)
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    rows, wanted = (
        [json.loads(line) for line in (CASE / name).read_text("utf-8").splitlines()][::order]
        for name in ("input.jsonl", "expected_tokens.jsonl")
    )
    tokenizer = open_tokenizer(engine())
    assert tokenizer is not None
    ids, stops = tokenizer.encode_batch([row["prompt"] for row in rows], add_special=True)
    asked = Prompts([*range(5)], ids, stops, [12] * 5, [FULL], [0] * 5, [], [])
    outcomes = ask(asked, model=str(model), seats=seats)

    assert [row["token_ids"] for row in wanted] == [ids for (ids,) in ids_of(outcomes)]
    assert [row["prompt_tokens"] for row in wanted] == [o.prompt_tokens for o in outcomes]
    for outcome, row in zip(outcomes, wanted, strict=True):
        whole = tokenizer.decode(row["token_ids"])
        assert outcome.text is not None
        assert whole.rstrip("\ufffd") == outcome.text.rstrip("\ufffd")


def test_answers_are_those_of_generate() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    rows = drawn_rows(24, seed=1)
    outcomes = ask(prompts(rows, Sampling(temperature=0, return_token_ids=True), max_tokens=20))
    for row, (ids,) in zip(rows, ids_of(outcomes), strict=True):
        given = torch.tensor([row])
        found = model.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=20, do_sample=False
        )

        assert found[0, len(row) :].tolist() == ids


@pytest.mark.parametrize(
    "settings",
    [
        {"seats": 3},
        {"seats": 16, "prompt_tokens": 64},
        # Room for about two rows: they are let in, grow, and are sent out again.
        {"seats": 16, "batch_tokens": 200},
    ],
)
def test_company_changes_no_answer(settings: dict[str, int]) -> None:
    rows = drawn_rows(30, seed=2)
    lengths = np.random.default_rng(3).integers(1, 40, 30).tolist()
    samplings = [
        (
            FULL,
            Sampling(temperature=0.9, top_p=0.9, seed=i, n=3, return_token_ids=True),
            Sampling(temperature=0, repetition_penalty=1.3, return_token_ids=True),
        )[i % 3]
        for i in range(30)
    ]
    asked = prompts(rows, *samplings, max_tokens=lengths)
    together = ask(asked, **settings)
    alone = [ask(asked.slice(i, i + 1), seats=1)[0] for i in range(30)]

    assert ids_of(alone) == ids_of(together)
    assert [o.finish_reason for o in alone] == [o.finish_reason for o in together]
    assert [o.output_tokens for o in alone] == [o.output_tokens for o in together]


@pytest.mark.parametrize("settings", [{}, {"seats": 2}, {"seats": 4, "batch_tokens": 150}])
def test_transformers_keeps_the_contract(settings: dict[str, int]) -> None:
    rows = prompts(drawn_rows(8, seed=4), max_tokens=10)

    check_engine(transformers, engine(**settings), rows=rows)


def test_transformers_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    rows = prompts(drawn_rows(40, seed=4), max_tokens=200)
    outcomes = check_deaths(engine(seats=4), rows=rows, log=tmp_path / "log")

    assert [o.text for o in outcomes] == [o.text for o in ask(rows)]


def test_answer_ends_before_its_stop_string() -> None:
    row = drawn_rows(1, seed=5)
    (whole,) = ask(prompts(row, max_tokens=30))
    assert whole.text is not None
    stop = whole.text[3:5]
    (cut,) = ask(
        prompts(row, Sampling(temperature=0, ignore_eos=True, stop=(stop,)), max_tokens=30)
    )

    assert whole.text[: whole.text.index(stop)] == cut.text
    assert "stop" == cut.finish_reason
    assert cut.output_tokens < whole.output_tokens


def test_greedy_samples_of_a_row_are_equal_and_counted() -> None:
    (outcome,) = ask(
        prompts(drawn_rows(1, seed=6), Sampling(temperature=0, n=3, ignore_eos=True))
    )

    assert [0, 1, 2] == [choice.index for choice in outcome.choices]
    assert 1 == len({choice.text for choice in outcome.choices})
    assert 24 == outcome.output_tokens


def test_samples_of_a_row_differ() -> None:
    hot = Sampling(temperature=3.0, n=4, seed=1, ignore_eos=True, return_token_ids=True)
    (outcome,) = ask(prompts(drawn_rows(1, seed=6), hot))

    assert 4 == len({tuple(choice.token_ids or ()) for choice in outcome.choices})


def test_log_probabilities_are_the_models_own() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    row = drawn_rows(1, seed=7)[0]
    sampling = Sampling(temperature=0, logprobs=3, ignore_eos=True, return_token_ids=True)
    (outcome,) = ask(prompts([row], sampling, max_tokens=4))
    (choice,) = outcome.choices
    assert choice.token_ids is not None
    assert choice.logprobs is not None
    with torch.inference_mode():
        logits = model(torch.tensor([row + choice.token_ids])).logits[0]
    wanted = torch.log_softmax(logits.float(), -1)
    for i, (token, entry) in enumerate(zip(choice.token_ids, choice.logprobs, strict=True)):
        assert entry["logprob"] == pytest.approx(
            float(wanted[len(row) - 1 + i, token]), abs=1e-4
        )
        assert len(entry["top"]) <= 3
        assert max(entry["top"].values()) == pytest.approx(entry["logprob"], abs=1e-6)


def test_draws_come_from_the_set_that_the_library_leaves() -> None:
    from transformers.generation import logits_process as theirs

    from rowmill.engines.transformers_draw import draw_of, next_token

    logits = torch.from_numpy(np.random.default_rng(0).normal(0, 2, 50).astype(np.float32))
    said = np.array([4, 9, 9], np.uint32)
    sampling = Sampling(temperature=0.8, top_k=20, top_p=0.8, min_p=0.1, repetition_penalty=1.5)
    left = logits[None]
    for one in (
        theirs.RepetitionPenaltyLogitsProcessor(1.5),
        theirs.TemperatureLogitsWarper(0.8),
        theirs.TopKLogitsWarper(20),
        theirs.TopPLogitsWarper(0.8),
        theirs.MinPLogitsWarper(0.1),
    ):
        left = one(torch.from_numpy(said.astype(np.int64))[None], left)
    shares = torch.softmax(left[0], -1)
    generator, draws = torch.Generator().manual_seed(0), 4000
    draw = draw_of(sampling, {})
    found = np.bincount(
        [
            next_token(logits, draw, prompt=said, said=[], generator=generator)
            for _ in range(draws)
        ],
        minlength=50,
    )

    assert set(np.flatnonzero(found)) == set(np.flatnonzero(shares.numpy()))
    assert np.abs(found / draws - shares.numpy()).max() < 0.04


def test_bad_rows_fail_alone() -> None:
    rows = [[5, 6], [], [VOCABULARY + 1], [7] * 600, [8, 9]]
    outcomes = ask(prompts(rows))

    assert ["ok", "error", "error", "error", "ok"] == [o.status for o in outcomes]
    assert ["invalid", "invalid", "too_long"] == [o.error_kind for o in outcomes[1:4]]


def test_what_is_not_asked_for_is_as_the_model_says(tmp_path: Path) -> None:
    """A model whose files say that it samples is drawn from; one that says nothing is not."""
    model = shutil.copytree(TINY, tmp_path / "model")
    told = {"do_sample": True, "temperature": 5.0, "eos_token_id": 1, "bos_token_id": 0}
    row, asked = drawn_rows(1, seed=8), Sampling(ignore_eos=True, return_token_ids=True, seed=3)
    plain = ids_of(ask(prompts(row, asked)))
    (model / "generation_config.json").write_text(json.dumps(told))
    drawn = ids_of(ask(prompts(row, asked), model=str(model)))

    assert plain == ids_of(ask(prompts(row)))
    assert drawn != plain


def test_model_without_positions_is_refused(tmp_path: Path) -> None:
    from transformers import MptConfig, MptForCausalLM

    from rowmill import errors

    folder = tmp_path / "mpt"
    small = MptConfig(d_model=32, n_heads=2, n_layers=1, max_seq_len=64, vocab_size=VOCABULARY)
    MptForCausalLM(small).save_pretrained(folder)
    shutil.copy(TINY / "tokenizer.json", folder)

    with pytest.raises(errors.ConfigError, match="takes no positions"):
        transformers.open(engine(model=str(folder)))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")

    assert any(
        "pickled" in word for word in transformers.check_options(engine(model=str(tmp_path)))
    )
