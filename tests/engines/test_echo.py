"""The echo engine: what it answers, and how it fails on command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import EngineConfig
from rowmill.engines import echo
from rowmill.rows import Outcome, Prompts, Sampling
from tests.engines.feeds import answers_of
from tests.engines.rows_of import byte_prompts


def ask(prompts: Prompts, **options: Any) -> list[Outcome]:
    return answers_of(
        echo.open(EngineConfig(name="echo", tokenizer="bytes", **options)), prompts
    )


TEXTS = st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=30), min_size=1)


@given(TEXTS, st.integers(0, 12))
def test_answer_is_the_end_of_the_prompt(texts: list[str], max_tokens: int) -> None:
    outcomes = ask(byte_prompts(texts, max_tokens=max_tokens))

    for text, outcome in zip(texts, outcomes, strict=True):
        whole = text.encode()
        count = min(max_tokens or len(whole), len(whole))
        tail = whole[len(whole) - count :]
        assert tail.decode("utf-8", "ignore") == outcome.text
        assert (count, len(whole)) == (outcome.output_tokens, outcome.prompt_tokens)
        assert ("length" if count < len(whole) else "stop") == outcome.finish_reason


@given(TEXTS, st.integers(0, 12))
def test_fast_and_slow_ways_answer_alike(texts: list[str], max_tokens: int) -> None:
    prompts = byte_prompts(texts, max_tokens=max_tokens)
    fast = ask(prompts)
    slow = ask(prompts, faults=[{"contains": "\0no such text\0", "action": "error"}])

    def answers(outcomes: list[Outcome]) -> list[Any]:
        return [(o.key, o.text, o.finish_reason, o.output_tokens) for o in outcomes]

    assert answers(fast) == answers(slow)


def test_choice_depends_on_the_prompt_alone() -> None:
    sampling = Sampling(choices=("yes", "no"), n=2)
    texts = [f"row {i}" for i in range(50)]
    outcomes = ask(byte_prompts([*texts, *texts], sampling=[sampling]))

    assert {"yes", "no"} == {outcome.text for outcome in outcomes}
    assert [o.text for o in outcomes[:50]] == [o.text for o in outcomes[50:]]
    assert {frozenset(("yes", "no"))} == {
        frozenset(c.text for c in o.choices) for o in outcomes
    }


def test_samples_are_told_apart() -> None:
    sampling = Sampling(n=3, return_token_ids=True)
    outcome = ask(byte_prompts(["abc"], max_tokens=2, sampling=[sampling]))[0]

    assert ["bc", "bc#1", "bc#2"] == [choice.text for choice in outcome.choices]
    assert [[98, 99]] * 3 == [choice.token_ids for choice in outcome.choices]
    assert 6 == outcome.output_tokens


def test_stop_ends_the_answer() -> None:
    outcome = ask(byte_prompts(["one. two"], sampling=[Sampling(stop=(". ",))]))[0]

    assert ("one", "stop") == (outcome.text, outcome.finish_reason)


def test_log_has_a_line_for_each_row_started(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "starts"
    ask(byte_prompts(["a", "b", "c"], first_key=7), log=str(log))

    assert "7\n8\n9\n" == log.read_text()


def test_scripted_error_fails_its_row_alone() -> None:
    faults = [{"contains": "bad", "action": "error"}]
    outcomes = ask(byte_prompts(["good", "bad one"]), faults=faults)

    assert [None, "refused"] == [outcome.error_kind for outcome in outcomes]
    assert "bad one" not in str(outcomes[1].error)


@pytest.mark.parametrize(("first", "then"), [("error", "oom"), ("oom", "error")])
def test_the_first_fault_that_fits_happens_whatever_it_does(first: str, then: str) -> None:
    faults = [{"contains": "river", "action": action} for action in (first, then)]

    if first == "oom":
        with pytest.raises(MemoryError):
            ask(byte_prompts(["river"]), faults=faults)
    else:
        assert ["refused"] == [
            o.error_kind for o in ask(byte_prompts(["river"]), faults=faults)
        ]


@pytest.mark.parametrize("action", ["error", "oom"])
@pytest.mark.parametrize("seats", [{}, {"seats": 9}])
def test_faults_above_so_many_seats_happen_there_alone(
    seats: dict[str, int], action: str
) -> None:
    """Without `seats` it has as many as it declares."""
    faults = [{"contains": "", "action": action, "above_seats": 8}]

    assert ["ok"] == [o.status for o in ask(byte_prompts(["a"]), faults=faults, seats=8)]
    if action == "oom":
        with pytest.raises(MemoryError):
            ask(byte_prompts(["a"]), faults=faults, **seats)
    else:
        assert ["error"] == [o.status for o in ask(byte_prompts(["a"]), faults=faults, **seats)]


def test_transient_fault_counts_its_attempts() -> None:
    faults = [
        {"contains": "twice", "action": "transient", "times": 2},
        {"contains": "always", "action": "transient"},
    ]
    twice, always = ask(byte_prompts(["twice", "always"]), faults=faults)

    assert ("ok", 3) == (twice.status, twice.attempts)
    assert ("transient", 6) == (always.error_kind, always.attempts)


def test_no_more_rows_than_seats_are_started_at_once(tmp_path: Path) -> None:
    log = tmp_path / "starts"
    engine = echo.open(
        EngineConfig(name="echo", tokenizer="bytes", seats=3, delay_s=0.02, log=str(log))
    )

    class Feed:
        def __init__(self) -> None:
            self.left = [byte_prompts([f"row {i}" for i in range(10)])]

        def take(self, *, wait: bool) -> Prompts | None:
            del wait
            return self.left.pop() if self.left else None

    answered = 0
    for outcomes in engine.run(Feed()):
        started = log.read_text().count("\n")
        assert started - answered <= 3
        answered += len(outcomes)
    engine.close()

    assert 10 == answered


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": 1}, "did you mean `delay_s`"),
        ({"delay_s": -1}, "`engine.delay_s`"),
        ({"faults": [{"contains": "a", "action": "explode"}]}, "`engine.faults.0.action`"),
        ({"faults": [{"contains": "a", "action": "die", "times": 1}]}, "needs `log`"),
    ],
)
def test_mistake_in_settings_is_a_sentence(options: dict[str, Any], words: str) -> None:
    found = echo.check_options(EngineConfig(name="echo", **options))

    assert 1 == len(found)
    assert words in found[0]
