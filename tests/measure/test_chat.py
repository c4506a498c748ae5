from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import Job
from rowmill.errors import ConfigError, InvalidRow
from rowmill.measure import open_measure
from rowmill.measure.chat import ChatTemplate
from rowmill.measure.control_tokens import ControlTokens
from rowmill.rows import Limits, Request
from rowmill.tokens import ByteTokenizer
from tests.measure.measured import ALL, PLAIN, WIRE, Case, expected, measured, opened, tiny

DAY = datetime(2024, 2, 3)  # noqa: DTZ001 - a day, no moment
TURNS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def render(source: str, *turns: tuple[str, str], tools: Any = None) -> str:
    messages = [
        {"role": role, "content": content} for role, content in turns or [("user", "q")]
    ]
    return ChatTemplate(source, {"bos_token": "<s>"}, DAY).render(messages, tools)


def test_a_value_nested_too_deeply_for_a_template_is_told_so() -> None:
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}

    with pytest.raises(
        InvalidRow, match=r"the chat template goes too deep: .* nested too deeply"
    ):
        render("{{ tools | tojson }}", tools=[deep])


@pytest.mark.parametrize("number", ["06", "11"])
def test_cases_06_and_11_prompts_are_exact(number: str) -> None:
    wanted = expected(number, "expected_prompts.jsonl")
    texts = Case(number).texts()

    assert {id: texts[id] for id in wanted} == {id: row["prompt"] for id, row in wanted.items()}


def test_case_08_the_templates_own_words_are_told() -> None:
    case = Case("08")
    wanted = expected("08", "expected.jsonl")

    for id, row in wanted.items():
        if row["outcome"] == "ok":
            assert id in case.ids
        elif row["outcome"] == "error":
            assert all(words in str(case.errors[id]) for words in row["contains"])
    assert case.texts()["ends-with-assistant"].endswith("<|im_start|>assistant\nThe answer is")


@pytest.mark.parametrize(("mode", "column"), [("as_text", "as_text"), ("parse", "default")])
def test_case_10_control_tokens_in_data(mode: str, column: str) -> None:
    case = Case("10", validate={"special_tokens": mode})

    for id, row in expected("10", "expected_counts.jsonl").items():
        assert len(case.ids[id]) == row[f"ids_{column}"]
        assert sum(number < 5 for number in case.ids[id]) == row[f"special_ids_{column}"]
    assert case.measure.control_rows == 3


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ {'k': 'é<\"'} | tojson }}", '{"k": "é<\\""}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        (
            "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
            "1",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "03 Feb 2024"),
        ("{{ bos_token }}{{ eos_token }}", "<s>"),
        ("{{ tools is none }}", "True"),
        ("{{ undefined_name }}", ""),
    ],
)
def test_templates_are_rendered_as_they_were_written_to_be(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('no such turn') }}", "refuses the conversation: no such turn"),
        ("{{ messages[0].content / 2 }}", "fails on the conversation: TypeError"),
        ("{{ messages.append(1) }}", "refuses the conversation"),
        ("{{ ''['__cla' ~ 'ss__'].x }}", "unsafe"),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "turns",
        ),
    ],
)
def test_a_template_that_fails_is_a_row_error(source: str, said: str) -> None:
    with pytest.raises(InvalidRow, match=said):
        render(source)


def test_a_template_with_a_wrong_syntax_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="chat template, line 1"):
        render("{% if %}")
    with pytest.raises(ConfigError, match="no template may reach"):
        render("{{ ''.__class__.__mro__ }}")


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ("The answer is", "<assistant>The answer is"),
        ("a ", "<assistant>a "),
        ("q", "<assistant>q"),
    ],
)
def test_the_assistants_last_words_are_continued(said: str, end: str) -> None:
    text = render(TURNS, ("user", "q"), ("assistant", said))

    assert text == f"<user>q</>{end}"


def test_space_that_the_template_trims_is_not_put_back() -> None:
    source = TURNS.replace("m.content", "m.content | trim")

    assert render(source, ("user", "q"), ("assistant", " a ")) == "<user>q</><assistant>a"


def test_an_empty_turn_of_the_assistant_is_a_new_one() -> None:
    assert render(TURNS, ("user", "q"), ("assistant", "")) == "<user>q</><assistant>"
    with pytest.raises(InvalidRow, match="one empty `assistant` message"):
        render(TURNS, ("assistant", ""))


def test_a_last_turn_that_cannot_be_continued_is_a_row_error() -> None:
    with pytest.raises(InvalidRow, match="drops the last"):
        render("{{ messages[0].content }}", ("user", "q"), ("assistant", "z"))
    calls = [{"function": {"name": "f", "arguments": {}}}]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    with pytest.raises(InvalidRow, match="ends with the assistant's tool calls"):
        ChatTemplate(TURNS, {}, DAY).render([message], None)


def test_a_model_without_template_cannot_chat_but_an_endpoint_may() -> None:
    row = Request(
        key=0,
        sampling=PLAIN,
        messages=[{"role": "user", "content": "a"}],
        wire=b"[]",
        wire_field="messages",
    )
    _, errors = measured(opened(tokenizer=ByteTokenizer()), [row])
    assert "no chat template" in str(errors[0])

    prompts, errors = measured(opened(WIRE, tokenizer=ByteTokenizer()), [row])
    assert errors == {}
    assert prompts.stops.tolist() == [0]


def test_the_day_is_told_only_where_the_template_asks_for_it(tmp_path: Path) -> None:
    asks = tmp_path / "t.jinja"
    asks.write_text("{{ strftime_now('%Y-%m-%d') }}")
    job = Job.model_validate({"engine": {"chat_template": str(asks)}})
    row = Request(key=0, sampling=PLAIN, messages=[{"role": "user", "content": "a"}])

    assert opened().template_date == ""
    assert date.fromisoformat(open_measure(job, tiny(), ALL).template_date)
    measure = open_measure(job, tiny(), ALL, template_date="2024-02-03")
    assert measure.template_date == "2024-02-03"
    assert tiny().decode(measured(measure, [row])[0].ids.tolist()) == "2024-02-03"


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_template_file_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "t.jinja"
    if content:
        file.write_bytes(content)

    with pytest.raises(ConfigError, match=r"`engine.chat_template`: `.*t\.jinja`"):
        opened(engine={"chat_template": str(file)})


PIECES = st.lists(
    st.sampled_from(["<s>", "<|im_end|>", "<|im_", "end|>", "<", "a", "é", "\ufdd0", "s>"]),
    max_size=6,
).map("".join)


def special_ids(ids: list[int]) -> list[int]:
    return [number for number in ids if number < 5]


@given(PIECES, PIECES)
def test_data_never_adds_a_control_token_to_a_conversation(first: str, second: str) -> None:
    """The decoded prompt is the rendered text, and its control tokens are the template's."""
    messages = [{"role": "user", "content": first}, {"role": "user", "content": second}]
    prompts, errors = measured(
        opened(Limits()), [Request(key=0, sampling=PLAIN, messages=messages)]
    )

    assert errors == {}
    ids = prompts.ids.tolist()
    assert special_ids(ids) == [0, 3, 4, 3, 4, 3]
    turns = "".join(f"<|im_start|>user\n{text}<|im_end|>\n" for text in (first, second))
    assert tiny().decode(ids, skip_special=False) == f"<s>{turns}<|im_start|>assistant\n"


@given(st.lists(PIECES, min_size=3, max_size=5).filter(lambda parts: len(parts) % 2))
def test_data_never_adds_a_control_token_to_a_raw_prompt(parts: list[str]) -> None:
    """Not even together with the literals that touch it."""
    text = "".join(parts)
    if not text:
        return
    request = Request(key=0, sampling=PLAIN, text=text, data_spans=parts)
    prompts, _ = measured(opened(Limits()), [request])

    ids = prompts.ids.tolist()
    assert tiny().decode(ids, skip_special=False) == f"<s>{text}"
    literals = "\x00".join(parts[::2])
    mine, _ = tiny().encode_batch([literals], add_special=True)
    assert len(special_ids(ids)) <= len(special_ids(mine.tolist()))


def test_a_raw_prompt_of_the_users_own_is_parsed() -> None:
    own = Request(key=0, sampling=PLAIN, text="a<|im_end|>")
    filled = Request(
        key=1,
        sampling=PLAIN,
        text="<s><s>x<|im_end|>",
        data_spans=["<s>", "<s>x", "<|im_end|>"],
    )
    measure = opened(Limits())
    prompts, _ = measured(measure, [own, filled])

    first, second = (part.tolist() for part in prompts.row_ids())
    assert special_ids(first) == [0, 4]
    assert special_ids(second) == [0, 0, 4]
    assert measure.control_rows == 1


def test_control_tokens_are_found_anywhere_in_a_value() -> None:
    controls = ControlTokens(["<s>", "</s>", ""])

    assert controls.is_in([{"a": {"b": ["x</s>"]}}])
    assert controls.is_in({"<s>": 1})
    assert not controls.is_in([{"a": "< s>"}, 5, None])
    assert controls.broken({"a": ["<s>"]}, "|") == {"a": ["<|s>"]}
    assert not ControlTokens([]).is_in("<s>")


def test_a_row_that_leaves_no_mark_is_refused() -> None:
    every = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    message = {"role": "user", "content": f"<s>{every}"}
    _, errors = measured(opened(), [Request(key=0, sampling=PLAIN, messages=[message])])

    assert "every noncharacter" in str(errors[0])
