from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.judging import Judge
from rowmill.engines.thoughts import NO_ANSWER, Thoughts
from rowmill.reasoning_config import ReasoningConfig
from rowmill.rows import Choice, Outcome, Sampling
from rowmill.tokens.byte_tokens import ByteTokenizer
from tests.engines.rows_of import byte_prompts

TAGS = ("<think>", "</think>")
IN_ANSWER = Thoughts(ReasoningConfig(tags=TAGS), ByteTokenizer())
IN_PROMPT = Thoughts(ReasoningConfig(tags=TAGS, begins="prompt"), None)


@pytest.mark.parametrize(
    ("thoughts", "text", "parted"),
    [
        (IN_ANSWER, "<think>\nhm\n</think>\n\nyes", ("hm", "yes")),
        (IN_ANSWER, " <think></think>yes", ("", "yes")),
        (IN_ANSWER, "yes", (None, "yes")),
        (IN_ANSWER, "yes </think> no", (None, "yes </think> no")),
        (IN_ANSWER, "<think>hm", ("hm", None)),
        (IN_ANSWER, "<think>a</think>b<think>c</think>d", ("a", "b<think>c</think>d")),
        (IN_PROMPT, "hm</think>yes", ("hm", "yes")),
        (IN_PROMPT, "<think>hm</think>yes", ("hm", "yes")),
        (IN_PROMPT, "hm", ("hm", None)),
    ],
)
def test_text_is_parted_at_its_tags(
    thoughts: Thoughts, text: str, parted: tuple[str | None, str | None]
) -> None:
    assert parted == thoughts.parted(text)


@given(st.text(alphabet="ab <>/think"), st.text(alphabet="ab \n"))
def test_nothing_is_lost_but_tags_and_space(reasoning: str, answer: str) -> None:
    if TAGS[1] in reasoning:
        return

    parted = IN_ANSWER.parted(f"<think>{reasoning}</think>{answer}")

    assert (reasoning.strip(), answer.lstrip()) == parted


def test_what_is_told_apart_is_counted_and_what_was_apart_stays() -> None:
    said = Outcome(1, "ok", text="<think>hm</think>yes", finish_reason="stop", output_tokens=9)
    known = msgspec.structs.replace(said, reasoning="known")

    parted = IN_ANSWER.told_apart(said)

    assert ("yes", "hm", 2) == (parted.text, parted.reasoning, parted.reasoning_tokens)
    assert known == IN_ANSWER.told_apart(known)


def test_schema_is_held_against_the_answer_alone() -> None:
    schema = '{"type": "object", "required": ["a"]}'
    texts = ['<think>{"a": 1} or not</think>{"a": 2}', '<think>{"a": 1}</think>{}', "<think>{"]
    judge = Judge(thoughts=Thoughts(ReasoningConfig(tags=TAGS), None))
    sampling = Sampling(schema=schema)
    judge.expect(byte_prompts(["p"] * 3, sampling=[sampling]))
    outcomes = [
        Outcome(
            key,
            "ok",
            text=text,
            finish_reason="length" if key == 2 else "stop",
            choices=[Choice(0, text), Choice(1, "{}")],
        )
        for key, text in enumerate(texts)
    ]

    good, wrong, cut = judge.judged(outcomes)

    assert (b'{"a":2}', None) == (bytes(good.parsed).replace(b" ", b""), good.violation)
    assert "`a`" in (good.choices[1].violation or "")
    assert wrong.violation is not None
    assert NO_ANSWER == cut.violation == cut.choices[0].violation
    assert (None, "length", "{") == (cut.text, cut.finish_reason, cut.reasoning)
