"""The contract suite that ships to plugin authors, over our own adapters, and over ones that break one promise each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import rowmill_loud
from rowmill_loud import Loud, LoudOptions

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import echo, http, llamacpp, resolve
from rowmill.engines.protocol import Feed
from rowmill.rows import Limits, Outcome, Prompts, Sampling
from rowmill.testing import PROMISES, BrokenContract, check_deaths, check_engine
from rowmill.tokens import open_tokenizer
from tests.engines.endpoint import fake_endpoint, wire_prompts
from tests.engines.rows_of import byte_prompts, id_prompts

ROWS = byte_prompts(["one of them", "two of them", "three", "four", "five"])
LOUD = EngineConfig(name="loud", tokenizer="bytes")


@pytest.mark.parametrize(
    "options",
    [{}, {"delay_s": 0.01, "seats": 2}, {"faults": [{"contains": "two", "action": "error"}]}],
)
def test_echo_keeps_the_contract(options: dict[str, Any]) -> None:
    check_engine(echo, EngineConfig(name="echo", tokenizer="bytes", **options), rows=ROWS)


def test_engine_of_the_example_keeps_the_contract() -> None:
    assert 5 == len(check_engine(rowmill_loud, LOUD, rows=ROWS))


@pytest.mark.slow
def test_engine_that_is_killed_keeps_the_contract(tmp_path: Path) -> None:
    engine = EngineConfig(name="echo", tokenizer="bytes", delay_s=0.2, seats=1)

    assert 5 == len(check_deaths(engine, rows=ROWS, log=tmp_path / "log"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_llamacpp_keeps_the_contract(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    try:
        engine = resolve(EngineConfig(max_model_len=256, seats=2, threads=1))
    except errors.MissingExtra as error:
        pytest.skip(str(error))
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    # Answers that it is sure of. It rounds as its batches fall, and a near tie would fall as they do.
    counts = ["1 2 3 4 5", "2 4 6 8 10", "a b c d e", "10 20 30 40 50"]
    ids, stops = tokenizer.encode_batch(counts, add_special=False)
    rows = id_prompts(np.split(ids, stops[:-1]), max_tokens=3)

    check_engine(llamacpp, engine, rows=rows, agree=0.7)
    check_deaths(engine, rows=rows, log=tmp_path / "log")


class Doubling(Loud):
    def answers(self, prompts: Prompts) -> list[Outcome]:
        return super().answers(prompts) * 2


class Foreign(Loud):
    def answers(self, prompts: Prompts) -> list[Outcome]:
        found = super().answers(prompts)
        return [msgspec.structs.replace(outcome, key=outcome.key + 9) for outcome in found]


class Forgetful(Loud):
    def answers(self, prompts: Prompts) -> list[Outcome]:
        return super().answers(prompts)[1:]


class Hoarding(Loud):
    """Waits for a second batch before it answers the first."""

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        while (prompts := feed.take(wait=True)) is not None:
            more = feed.take(wait=True)
            yield self.answers(prompts) + (self.answers(more) if more else [])


class Hasty(Loud):
    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        prompts = feed.take(wait=True)
        assert prompts is not None
        yield self.answers(prompts)


class Unlimited(Loud):
    def __init__(self, limits: Limits, options: LoudOptions) -> None:
        super().__init__(msgspec.structs.replace(limits, seats=0), options)


class Changed(Loud):
    """Answers right, but for some fields."""

    def answers(self, prompts: Prompts) -> list[Outcome]:
        return [
            msgspec.structs.replace(outcome, **self.change(outcome))
            for outcome in super().answers(prompts)
        ]

    def change(self, outcome: Outcome) -> dict[str, Any]:
        raise NotImplementedError


class Silent(Changed):
    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"status": "error"}


class NotFinite(Changed):
    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"seconds": float("inf")}


class Untold(Changed):
    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"finish_reason": ""}


class Padding(Changed):
    """Counts its padding."""

    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"prompt_tokens": 64}


class Uncounted(Changed):
    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"output_tokens": 0}


class Talkative(Loud):
    def said(self, ids: Any, max_tokens: int, sampling: Sampling) -> tuple[str, str]:
        return super().said(ids, max_tokens + 1, sampling)


class CutSilently(Changed):
    """Says that it was cut where it was not."""

    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"finish_reason": "length"}


class Unstoppable(Loud):
    def said(self, ids: Any, max_tokens: int, sampling: Sampling) -> tuple[str, str]:
        return super().said(ids, max_tokens, msgspec.structs.replace(sampling, stop=()))


class Wavering(Loud):
    """The first row that has a stop string is answered otherwise than before, and so never comes to it."""

    def said(self, ids: Any, max_tokens: int, sampling: Sampling) -> tuple[str, str]:
        text, reason = super().said(ids, max_tokens, sampling)
        is_first = bool(sampling.stop) and not getattr(self, "has_wavered", False)
        if not is_first:
            return text, reason
        self.has_wavered = True
        return "x" * max_tokens, "length"


class Infectious(Loud):
    """One bad row takes all beside it along."""

    def answers(self, prompts: Prompts) -> list[Outcome]:
        found = super().answers(prompts)
        bad = [outcome for outcome in found if outcome.status == "error"]
        if not bad:
            return found
        return [msgspec.structs.replace(bad[0], key=outcome.key) for outcome in found]


class Padded(Loud):
    """Rows beside others get other answers than alone."""

    def answers(self, prompts: Prompts) -> list[Outcome]:
        found = super().answers(prompts)
        if len(prompts) == 1:
            return found
        return [
            msgspec.structs.replace(outcome, text=(outcome.text or "").replace("!", "?"))
            for outcome in found
        ]


class OneSample(Changed):
    """Drops samples."""

    def change(self, outcome: Outcome) -> dict[str, Any]:
        return {"choices": outcome.choices[:1]}


@pytest.mark.parametrize(
    ("engine", "promise"),
    [
        (Unlimited, "limits"),
        (Doubling, "once"),
        (Foreign, "once"),
        (Forgetful, "flow"),
        (Hoarding, "flow"),
        (Hasty, "end"),
        (Silent, "form"),
        (NotFinite, "form"),
        (Untold, "form"),
        (Padding, "counts"),
        (Uncounted, "counts"),
        (Talkative, "max_tokens"),
        (CutSilently, "max_tokens"),
        (Unstoppable, "stop"),
        (Infectious, "faults"),
        (Padded, "company"),
        (OneSample, "sampling"),
    ],
)
def test_broken_promise_is_named(engine: type[Loud], promise: str) -> None:
    adapter = SimpleNamespace(open=lambda _: engine(rowmill_loud.declare(LOUD), LoudOptions()))

    with pytest.raises(BrokenContract, match=f"`{promise}`") as raised:
        check_engine(adapter, LOUD, rows=ROWS, patience_s=0.2)

    assert promise == raised.value.promise


def test_unknown_setting_that_passes_is_named() -> None:
    adapter = SimpleNamespace(open=rowmill_loud.open, check_options=lambda _: [])

    with pytest.raises(BrokenContract, match="unknown setting") as raised:
        check_engine(adapter, LOUD, rows=ROWS)

    assert "settings" == raised.value.promise


def test_share_of_equal_answers_is_the_authors_to_say() -> None:
    adapter = SimpleNamespace(open=lambda _: Padded(rowmill_loud.declare(LOUD), LoudOptions()))

    with pytest.raises(BrokenContract, match="50% of 6") as raised:
        check_engine(adapter, LOUD, rows=ROWS, agree=0.7)
    assert "company" == raised.value.promise

    check_engine(adapter, LOUD, rows=ROWS, agree=0.5)


def test_answer_that_was_another_one_need_not_end_at_its_stop_string() -> None:
    adapter = SimpleNamespace(
        open=lambda _: Wavering(rowmill_loud.declare(LOUD), LoudOptions())
    )

    with pytest.raises(BrokenContract, match="80% of 5 answers ended") as raised:
        check_engine(adapter, LOUD, rows=ROWS)
    assert "stop" == raised.value.promise

    check_engine(adapter, LOUD, rows=ROWS, agree=0.7)


def test_every_promise_has_an_engine_that_breaks_it() -> None:
    (mark,) = test_broken_promise_is_named.pytestmark  # type: ignore[attr-defined]
    broken = {promise for _, promise in mark.args[1]}

    assert set(PROMISES) - {"settings", "deaths"} == broken


@pytest.mark.slow
def test_engine_that_is_not_there_again_is_named(tmp_path: Path) -> None:
    """An engine that dies once more than it was killed."""
    fault = {"contains": "three", "action": "die", "times": 1}
    engine = EngineConfig(
        name="echo",
        tokenizer="bytes",
        delay_s=0.2,
        seats=1,
        log=str(tmp_path / "rows"),
        faults=[fault],
    )

    with pytest.raises(BrokenContract) as raised:
        check_deaths(engine, rows=ROWS, log=tmp_path / "log")

    assert "deaths" == raised.value.promise


def test_http_keeps_the_contract_with_rows_that_an_endpoint_refuses(tmp_path: Path) -> None:
    refuse = {"contains": "", "action": {"type": "status", "code": 400}}
    rows = wire_prompts(["one", "two", "three", "four"], samplings=[Sampling(n=2)])
    with fake_endpoint(tmp_path, plan=[refuse]) as endpoint:
        engine = EngineConfig(name="http", url=endpoint.url, seats=2)
        outcomes = check_engine(http, engine, rows=rows)

    assert ["error"] * 4 == [outcome.status for outcome in outcomes]
