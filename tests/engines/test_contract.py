"""The contract suite that ships to plugin authors, over our own adapters, and over ones that break it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import echo, http, llamacpp, resolve
from rowmill.engines.protocol import Feed
from rowmill.rows import Limits, Outcome, Prompts, Sampling
from rowmill.testing import BrokenContract, check_engine
from tests.engines.endpoint import fake_endpoint, wire_prompts
from tests.engines.rows_of import byte_prompts

ROWS = byte_prompts(["one", "two", "three", "four", "five"])


@pytest.mark.parametrize(
    "options",
    [{}, {"delay_s": 0.01, "seats": 2}, {"faults": [{"contains": "two", "action": "error"}]}],
)
def test_echo_keeps_the_contract(options: dict[str, Any]) -> None:
    check_engine(echo, EngineConfig(name="echo", tokenizer="bytes", **options), rows=ROWS)


def test_http_keeps_the_contract(tmp_path: Path) -> None:
    refuse = {"contains": "two", "action": {"type": "status", "code": 400}}
    rows = wire_prompts(["one", "two", "three", "four"], samplings=[Sampling(n=2)])
    with fake_endpoint(tmp_path, plan=[refuse]) as endpoint:
        engine = EngineConfig(name="http", url=endpoint.url, seats=2)
        outcomes = check_engine(http, engine, rows=rows)

    assert ["ok", "error", "ok", "ok"] == [outcome.status for outcome in outcomes]


@pytest.mark.slow
def test_llamacpp_keeps_the_contract() -> None:
    pytest.importorskip("xllamacpp")
    try:
        engine = resolve(EngineConfig(max_model_len=256, seats=2))
    except errors.MissingExtra as error:
        pytest.skip(str(error))

    check_engine(llamacpp, engine, rows=byte_prompts(["aa", "bb", "cc", "dd"], max_tokens=2))


class Wrong:
    """An engine that answers right, but for what a test changes."""

    limits = Limits()

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        while (prompts := feed.take(wait=True)) is not None:
            yield self.answer(prompts)

    def answer(self, prompts: Prompts) -> list[Outcome]:
        return [Outcome(key, "ok", text="a", attempts=1) for key in prompts.keys]

    def close(self) -> None:
        pass


class Doubling(Wrong):
    def answer(self, prompts: Prompts) -> list[Outcome]:
        return super().answer(prompts) * 2


class Silent(Wrong):
    def answer(self, prompts: Prompts) -> list[Outcome]:
        failed = (msgspec.structs.replace(o, status="error") for o in super().answer(prompts))
        return list(failed)


class NotFinite(Wrong):
    def answer(self, prompts: Prompts) -> list[Outcome]:
        return [
            msgspec.structs.replace(o, seconds=float("inf")) for o in super().answer(prompts)
        ]


class Hasty(Wrong):
    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        prompts = feed.take(wait=True)
        assert prompts is not None
        yield self.answer(prompts)


def test_plain_engine_passes() -> None:
    assert 5 == len(
        check_engine(SimpleNamespace(open=lambda _: Wrong()), EngineConfig(), rows=ROWS)
    )


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Doubling, "more than one outcome"),
        (Silent, "failed without"),
        (NotFinite, "does not survive JSON"),
        (Hasty, "before the feed did"),
    ],
)
def test_broken_contract_is_named(engine: type[Wrong], words: str) -> None:
    with pytest.raises(BrokenContract, match=words):
        check_engine(SimpleNamespace(open=lambda _: engine()), EngineConfig(), rows=ROWS)


def test_unknown_setting_that_passes_is_named() -> None:
    adapter = SimpleNamespace(open=lambda _: Wrong(), check_options=lambda _: [])

    with pytest.raises(BrokenContract, match="unknown setting"):
        check_engine(adapter, EngineConfig(), rows=ROWS)
