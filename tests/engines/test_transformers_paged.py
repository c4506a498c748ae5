"""Paged batching of the transformers adapter with the real library, on a CPU."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import transformers
from rowmill.engines.transformers_paged import PagedTransformers
from rowmill.engines.transformers_pages import PAGE_TOKENS
from rowmill.rows import Outcome, Prompts, Sampling
from rowmill.testing import check_deaths, check_engine
from tests.engines.feeds import ListFeed, answers_of
from tests.engines.rows_of import id_prompts

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TINY = Path(__file__).parent.parent / "golden" / "tiny_model"
VOCABULARY = 264
PLAIN = Sampling(temperature=0, return_token_ids=True)
FULL = Sampling(temperature=0, ignore_eos=True, return_token_ids=True)
SMALL = {"batch_tokens": 2048, "prompt_tokens": 256}


def engine(**settings: Any) -> EngineConfig:
    said = {"name": "transformers", "model": str(TINY), "threads": 1, "batching": "paged"}
    return EngineConfig.model_validate({**said, **SMALL, **settings})


def opened(**settings: Any) -> PagedTransformers:
    found = transformers.open(engine(**settings))
    assert isinstance(found, PagedTransformers)
    return found


def prompts(
    rows: list[list[int]], *samplings: Sampling, max_tokens: int | list[int] = 8
) -> Prompts:
    return id_prompts(rows, sampling=samplings or [FULL], max_tokens=max_tokens)


def drawn_rows(count: int, seed: int, longest: int = 60, shortest: int = 1) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [
        random.integers(3, VOCABULARY, int(length)).tolist()
        for length in random.integers(shortest, longest, count)
    ]


def ask(asked: Prompts, **settings: Any) -> list[Outcome]:
    return answers_of(transformers.open(engine(**settings)), asked)


def ids_of(outcomes: list[Outcome]) -> list[list[list[int] | None]]:
    return [[choice.token_ids for choice in outcome.choices] for outcome in outcomes]


def share_of_equal(some: list[Outcome], others: list[Outcome]) -> float:
    pairs = zip(ids_of(some), ids_of(others), strict=True)
    return sum(one == other for one, other in pairs) / len(some)


@pytest.mark.parametrize("settings", [{}, {"seats": 2}, {"seats": 4, "batch_tokens": 512}])
def test_paged_batching_keeps_the_contract(settings: dict[str, int]) -> None:
    check_engine(
        transformers, engine(**settings), rows=prompts(drawn_rows(8, seed=4), max_tokens=10)
    )


@pytest.mark.parametrize("sampling", [PLAIN, FULL])
@pytest.mark.parametrize("settings", [{"seats": 3}, {"seats": 32}])
def test_greedy_answers_are_those_of_padded_rows(
    sampling: Sampling, settings: dict[str, int]
) -> None:
    lengths = np.random.default_rng(3).integers(1, 60, 40).tolist()
    asked = prompts(drawn_rows(40, seed=2, longest=300), sampling, max_tokens=lengths)
    paged, padded = ask(asked, **settings), ask(asked, batching="padded")

    assert ["ok"] * 40 == [outcome.status for outcome in paged]
    assert share_of_equal(paged, padded) >= 0.95
    for one, other in zip(paged, padded, strict=True):
        if ids_of([one]) == ids_of([other]):
            assert other.text == one.text
            assert other.finish_reason == one.finish_reason
            assert other.output_tokens == one.output_tokens
            assert other.prompt_tokens == one.prompt_tokens


def test_layers_with_a_window_are_answered_as_with_padded_rows(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(3)
    small = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        use_sliding_window=True,
        sliding_window=32,
        max_window_layers=2,
        initializer_range=0.3,
        eos_token_id=1,
        bos_token_id=0,
    )
    assert {"full_attention", "sliding_attention"} == set(small.layer_types)
    Qwen2ForCausalLM(small).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, tmp_path)
    asked = prompts(drawn_rows(40, seed=5, longest=200), FULL, max_tokens=30)
    paged = ask(asked, model=str(tmp_path), seats=8, batch_tokens=1024)
    padded = ask(asked, model=str(tmp_path), batching="padded")

    assert share_of_equal(paged, padded) >= 0.95


def test_greedy_rows_stand_beside_drawn_ones() -> None:
    rows = drawn_rows(30, seed=6)
    hot = Sampling(temperature=3.0, ignore_eos=True, return_token_ids=True)
    samplings = [(FULL, hot, msgspec.structs.replace(hot, top_k=1))[i % 3] for i in range(30)]
    asked = prompts(rows, *samplings, max_tokens=12)
    paged, greedy = ask(asked, seats=8), ask(prompts(rows, max_tokens=12), batching="padded")

    assert ["ok"] * 30 == [outcome.status for outcome in paged]
    # A draw from one token is no draw, whatever the temperature beside it.
    assert share_of_equal(paged[::3] + paged[2::3], greedy[::3] + greedy[2::3]) >= 0.95
    assert share_of_equal(paged[1::3], greedy[1::3]) < 0.5


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=2.0, top_k=5),
        Sampling(temperature=2.0, top_p=0.4),
        Sampling(temperature=0.7, top_k=6, top_p=0.6),
        Sampling(temperature=1.5),
    ],
)
def test_rows_draw_from_the_set_that_they_ask_for(sampling: Sampling) -> None:
    """Beside rows of other settings, from whose sets they would draw otherwise."""
    from transformers import AutoModelForCausalLM
    from transformers.generation import logits_process as theirs

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    draws, row = 600, drawn_rows(1, seed=7, shortest=20)[0]
    asked = msgspec.structs.replace(sampling, n=draws, ignore_eos=True, return_token_ids=True)
    others = Sampling(temperature=50.0, ignore_eos=True, return_token_ids=True, n=50)
    found = ask(prompts([row, row, row], others, asked, FULL, max_tokens=1), seats=64)
    with torch.inference_mode():
        left = model(torch.tensor([row])).logits[:, -1].float()
    for one in (
        theirs.TemperatureLogitsWarper(float(sampling.temperature or 0)),
        theirs.TopKLogitsWarper(sampling.top_k or VOCABULARY),
        theirs.TopPLogitsWarper(sampling.top_p or 1.0),
    ):
        left = one(None, left)
    shares = torch.softmax(left[0], -1).numpy()
    counts = np.bincount(
        [ids[0] for ids in ids_of([found[1]])[0] if ids is not None], minlength=VOCABULARY
    )

    assert draws == counts.sum() == len(found[1].choices)
    assert not counts[shares == 0].any()
    assert np.abs(counts / draws - shares).max() < 0.09
    assert len({str(ids) for ids in ids_of([found[0]])[0]}) > 20


def test_answer_ends_at_an_end_token_of_the_model(tmp_path: Path) -> None:
    """The second of two; what is behind it is not computed."""
    row = drawn_rows(1, seed=5)
    (whole,) = ids_of(ask(prompts(row, max_tokens=40)))
    end = (whole[0] or [])[12]
    first = (whole[0] or []).index(end)
    model = shutil.copytree(TINY, tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, end]}))
    engine = opened(model=str(model))
    pages = engine._pages
    (outcome,) = answers_of(engine, prompts(row, PLAIN, max_tokens=400))

    assert "stop" == outcome.finish_reason
    assert [(whole[0] or [])[: first + 1]] == ids_of([outcome])[0]
    assert pages.steps <= first + 3


def test_answer_ends_before_its_stop_string() -> None:
    rows = drawn_rows(12, seed=5)
    whole = ask(prompts(rows, max_tokens=40))
    texts = [outcome.text or "" for outcome in whole]
    stops = [text[3:5] if i % 2 else "never said" for i, text in enumerate(texts)]
    samplings = [Sampling(temperature=0, ignore_eos=True, stop=(stop,)) for stop in stops]
    cut = ask(prompts(rows, *samplings, max_tokens=40), seats=3)

    assert [text.partition(stop)[0] for text, stop in zip(texts, stops, strict=True)] == [
        outcome.text for outcome in cut
    ]
    assert ["length", "stop"] * 6 == [outcome.finish_reason for outcome in cut]
    for one, other in zip(cut[1::2], whole[1::2], strict=True):
        assert one.output_tokens < other.output_tokens


def test_what_is_behind_a_stop_string_is_not_computed() -> None:
    (whole,) = ask(prompts(drawn_rows(1, seed=5), max_tokens=40))
    stop = (whole.text or "")[3:5]
    cut = Sampling(temperature=0, ignore_eos=True, stop=(stop,))
    engine = opened(seats=1)
    pages = engine._pages
    first, _ = answers_of(engine, prompts(drawn_rows(1, seed=5) * 2, cut, FULL, max_tokens=400))

    assert first.output_tokens < 40
    assert pages.steps < 400 + 60


def test_samples_of_a_row() -> None:
    hot = Sampling(temperature=3.0, n=4, ignore_eos=True, return_token_ids=True)
    greedy = Sampling(temperature=0, n=3, ignore_eos=True, return_token_ids=True)
    drawn, equal = ask(prompts(drawn_rows(2, seed=6), hot, greedy))

    assert [0, 1, 2, 3] == [choice.index for choice in drawn.choices]
    assert 4 == len({tuple(choice.token_ids or ()) for choice in drawn.choices})
    assert 32 == drawn.output_tokens
    assert [0, 1, 2] == [choice.index for choice in equal.choices]
    assert 1 == len({tuple(choice.token_ids or ()) for choice in equal.choices})
    assert 24 == equal.output_tokens


def test_bad_rows_fail_alone() -> None:
    rows = [[5, 6], [], [VOCABULARY + 1], [7] * 600, [8, 9]]
    outcomes = ask(prompts(rows))

    assert ["ok", "error", "error", "error", "ok"] == [o.status for o in outcomes]
    assert ["invalid", "invalid", "too_long"] == [o.error_kind for o in outcomes[1:4]]


class OneByOne:
    """A feed of rows, one at a time, that counts those taken."""

    def __init__(self, rows: Prompts) -> None:
        self.rows, self.taken = rows, 0

    def take(self, *, wait: bool) -> Prompts | None:
        del wait
        if self.taken == len(self.rows):
            return None
        self.taken += 1
        return self.rows.slice(self.taken - 1, self.taken)


def test_of_more_rows_than_seats_the_feed_keeps_most() -> None:
    lengths = np.random.default_rng(4).integers(2, 20, 60).tolist()
    feed = OneByOne(prompts(drawn_rows(60, seed=8), max_tokens=lengths))
    engine = opened(seats=4)
    answered, most, running = 0, 0, 0.0
    with closing(engine):
        for some in engine.run(feed):
            running = max(running, engine.counters()["running"])
            most = max(most, feed.taken - answered)
            answered += len(some)

    assert 1 < running <= 4
    assert 60 == answered
    # The seats, half of them more inside, and as many that wait.
    assert 4 < most <= 4 + 2 + 4


def test_rows_wait_where_pages_are_few() -> None:
    """Two pages: two rows at once, of which one is sent out when the other grows into a second."""
    rows = drawn_rows(16, seed=9, shortest=120, longest=230)
    asked = prompts(rows, max_tokens=np.random.default_rng(1).integers(5, 150, 16).tolist())
    engine = opened(seats=8, batch_tokens=2 * PAGE_TOKENS)
    paged, padded = answers_of(engine, asked), ask(asked, batching="padded")

    assert 2 * PAGE_TOKENS == engine.limits.kv_tokens
    assert share_of_equal(paged, padded) >= 0.95


def test_a_row_may_fill_all_pages_and_a_longer_one_fails_alone() -> None:
    rows = [[9] * 5, [7] * (PAGE_TOKENS - 10), [8] * PAGE_TOKENS, [9] * 6]
    engine = opened(batch_tokens=PAGE_TOKENS - 1)
    asked = prompts(rows, max_tokens=0)
    outcomes = answers_of(engine, asked)

    assert PAGE_TOKENS == engine.limits.max_model_tokens
    assert ["ok", "ok", "error", "ok"] == [outcome.status for outcome in outcomes]
    assert (10, "length") == (outcomes[1].output_tokens, outcomes[1].finish_reason)
    assert "too_long" == outcomes[2].error_kind
    assert f"{PAGE_TOKENS} prompt tokens, limit {PAGE_TOKENS}" in str(outcomes[2].error)


def test_rows_that_begin_alike_are_answered_as_with_padded_rows() -> None:
    start = drawn_rows(1, seed=10, shortest=PAGE_TOKENS + 9, longest=PAGE_TOKENS + 10)[0]
    rows = [start + rest for rest in drawn_rows(12, seed=11)]
    asked = prompts(rows, max_tokens=12)
    engine = opened(seats=4, batch_tokens=1024)
    paged = answers_of(engine, asked)

    assert engine.limits.shares_prefixes
    assert share_of_equal(paged, ask(asked, batching="padded")) >= 0.95


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(temperature=1.0, seed=3), "`seed` 3"),
        (Sampling(temperature=1.0, seed_per_row=True), "`seed`"),
        (Sampling(temperature=0, repetition_penalty=1.2), "`repetition_penalty` 1.2"),
        (Sampling(temperature=1.0, min_p=0.1), "`min_p` 0.1"),
        (Sampling(temperature=0, presence_penalty=0.5), "`presence_penalty`"),
    ],
)
def test_what_cannot_be_honoured_is_said(sampling: Sampling, words: str) -> None:
    good = Sampling(temperature=0, seed=5, repetition_penalty=1.0)
    first, bad, last = ask(prompts(drawn_rows(3, seed=12), good, sampling, good))

    assert ["ok", "error", "ok"] == [first.status, bad.status, last.status]
    assert "invalid" == bad.error_kind
    assert words in str(bad.error)
    assert '`engine.batching = "padded"`' in str(bad.error)


def test_penalty_of_the_models_own_is_set_aside_or_refused(tmp_path: Path) -> None:
    model = shutil.copytree(TINY, tmp_path / "model")
    told = {"repetition_penalty": 1.3, "eos_token_id": 1, "bos_token_id": 0}
    (model / "generation_config.json").write_text(json.dumps(told))
    own = Sampling(
        temperature=0, ignore_eos=True, return_token_ids=True, repetition_penalty=1.0
    )
    rows = drawn_rows(2, seed=13)
    refused, answered = ask(prompts(rows, FULL, own), model=str(model))

    assert "set it to 1" in str(refused.error)
    assert ids_of([answered]) == ids_of(ask(prompts(rows))[1:])


def test_row_that_the_library_refuses_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    right = engine._pages._drawn

    def wrong(draw: Any) -> dict[str, Any]:
        return {**right(draw), **({"top_k": "five"} if draw.temperature == 2.5 else {})}

    monkeypatch.setattr(engine._pages, "_drawn", wrong)
    samplings = [Sampling(temperature=heat, n=3) for heat in (1.0, 2.5, 1.0)]
    outcomes = answers_of(engine, prompts(drawn_rows(3, seed=14), *samplings))

    assert ["ok", "error", "ok"] == [outcome.status for outcome in outcomes]
    assert "refused" == outcomes[1].error_kind


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seats", [4, 32])
def test_thread_that_dies_ends_the_engine(seats: int) -> None:
    """Also where no row is left to be let in, which would find out."""
    engine = opened(seats=seats)

    def die(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if (kwargs["input_ids"] == 263).any():
            raise IndexError(kwargs["input_ids"].tolist())

    engine._pages._model.register_forward_pre_hook(die, with_kwargs=True)
    rows = [[5, 6, 7]] * 9 + [[5, 263]] + [[5, 6, 7]] * 9
    feed = ListFeed([prompts(rows, max_tokens=30)])
    words = r"batching thread.*\(IndexError\)"
    with closing(engine), pytest.raises(errors.EngineDied, match=words) as raised:
        list(engine.run(feed))

    assert "263" not in str(raised.value)


@pytest.mark.timeout(60)
def test_thread_that_ends_without_a_word_ends_the_engine() -> None:
    engine = opened(seats=20)
    work = engine.run(ListFeed([prompts(drawn_rows(8, seed=15), max_tokens=400)]))
    next(work)
    next(work)
    engine._pages._manager.stop(hard_stop=True)

    with pytest.raises(errors.EngineDied, match="without a word"):
        list(work)


def test_engine_with_pages_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    rows = prompts(drawn_rows(40, seed=4), max_tokens=200)
    outcomes = check_deaths(engine(seats=4), rows=rows, log=tmp_path / "log")
    padded = ask(rows, batching="padded")
    same = [one.text == other.text for one, other in zip(outcomes, padded, strict=True)]

    assert sum(same) >= 0.95 * len(same)
