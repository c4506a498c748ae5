from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import Job
from rowmill.errors import ConfigError, TooLong
from rowmill.measure import has_template, open_measure
from rowmill.measure.lengths import LengthRule
from rowmill.rows import Limits, Request, Sampling
from rowmill.tokens import ByteTokenizer
from tests.measure.measured import (
    ALL,
    GOLDEN,
    PLAIN,
    WIRE,
    Case,
    expected,
    measured,
    opened,
    tiny,
)
from tests.strategies import TEXTS

CHAT = GOLDEN / "cases" / "06-tool-arguments-are-a-string" / "template.jinja"
POLICIES = ["error", "clamp_max_tokens", "truncate_left", "truncate_right"]


def texts(*texts: str, sampling: Sampling = PLAIN) -> list[Request]:
    return [Request(key=i * 3, sampling=sampling, text=text) for i, text in enumerate(texts)]


def test_case_03_the_boundary_is_one_rule() -> None:
    case = Case("03")

    lengths = {id: len(ids) for id, ids in case.ids.items()}
    assert lengths == {"b510-m1": 510, "b511-m1": 511, "b500-m12": 500, "b500-none": 500}
    assert case.max_tokens == {"b510-m1": 1, "b511-m1": 1, "b500-m12": 12, "b500-none": 12}
    assert "512 prompt tokens, limit 512" in str(case.errors["b512-m1"])
    assert "513 prompt tokens, limit 512" in str(case.errors["b513-m1"])
    said = {id: str(case.errors[id]) for id in ("b500-m13", "b500-m64", "short-m100000")}
    assert "500 prompt tokens + 13 `max_tokens` = 513, limit 512" in said["b500-m13"]
    assert "500 prompt tokens + 64 `max_tokens` = 564" in said["b500-m64"]
    assert "20 prompt tokens + 100000 `max_tokens`" in said["short-m100000"]


@pytest.mark.parametrize("limits", [ALL, WIRE], ids=["ids", "wire"])
def test_case_03_clamping_records_what_is_left(limits: Limits) -> None:
    case = Case("03", limits=limits, validate={"too_long": "clamp_max_tokens"})

    asked = {id: case.max_tokens[id] for id in ("b500-m13", "b500-m64", "short-m100000")}
    assert asked == {"b500-m13": 12, "b500-m64": 12, "short-m100000": 492}
    assert case.errors.keys() == {"b512-m1", "b513-m1"}


def test_an_endpoint_gets_the_same_treatment() -> None:
    assert Case("03", limits=WIRE).errors.keys() == Case("03").errors.keys()
    assert Case("03", limits=WIRE).max_tokens["b500-none"] == 0


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1),
    st.sampled_from(POLICIES),
    st.integers(0, 30),
    st.booleans(),
)
def test_no_row_passes_that_does_not_fit(
    rows: list[tuple[int, int]], policy: Any, limit: int, fills: bool
) -> None:
    prompt, asked = (np.array(column) for column in zip(*rows, strict=True))
    rule = LengthRule(limit=limit, policy=policy, fills_context=fills)
    kept, max_tokens, is_bad = rule.apply(prompt, asked)

    for i, (p, m) in enumerate(rows):
        if not limit:
            assert (kept[i], max_tokens[i], is_bad[i]) == (p, m, False)
        elif not is_bad[i]:
            assert kept[i] + max(int(max_tokens[i]), 1) <= limit
            assert kept[i] == p or rule.cuts
            assert max_tokens[i] == m or policy == "clamp_max_tokens" or (fills and not m)
            assert max_tokens[i] > 0 or not fills
        else:
            assert p + max(m, 1) > limit  # what fits is never refused


@given(st.lists(TEXTS.filter(bool), min_size=1, max_size=6), st.data())
def test_rows_keep_their_order_whatever_kind_they_are(
    values: list[str], data: st.DataObject
) -> None:
    requests, wanted = [], []
    for i, text in enumerate(values):
        kind = data.draw(st.sampled_from(["text", "ids", "chat"]))
        plain = text.replace("<", "")
        raw = [5 + byte for byte in plain.encode()]
        if kind == "text":
            requests.append(Request(key=i, sampling=PLAIN, text=plain))
            wanted.append([0, *raw])
        elif kind == "ids":
            requests.append(Request(key=i, sampling=PLAIN, ids=[3, i]))
            wanted.append([3, i])
        else:
            message = {"role": "user", "content": plain}
            requests.append(Request(key=i, sampling=PLAIN, messages=[message]))
            turn = [5 + byte for byte in b"user\n"], [5 + byte for byte in b"assistant\n"]
            wanted.append([0, 3, *turn[0], *raw, 4, 15, 3, *turn[1]])
    prompts, errors = measured(opened(Limits()), requests)

    assert errors == {}
    assert [part.tolist() for part in prompts.row_ids()] == wanted


def test_equal_sampling_is_kept_once() -> None:
    other = Sampling(max_tokens=2)
    rows = [
        Request(key=i, sampling=sampling, text="a")
        for i, sampling in enumerate([other, PLAIN, Sampling(max_tokens=2), PLAIN])
    ]
    prompts, _ = measured(opened(), rows)

    assert prompts.samplings == [other, PLAIN]
    assert prompts.sampling_of == [0, 1, 0, 1]
    assert prompts.max_tokens == [2, 510, 2, 510]


def test_a_rejected_row_leaves_the_others_whole() -> None:
    prompts, errors = measured(opened(), texts("a", "b" * 600, "c"))

    assert [part.tolist() for part in prompts.row_ids()] == [[0, 5 + 97], [0, 5 + 99]]
    assert list(errors) == [1]
    assert isinstance(errors[1], TooLong)


def test_a_prompt_without_tokens_is_a_row_error(tmp_path: Any) -> None:
    silent = tmp_path / "t.jinja"
    silent.write_text("{{ eos }}")
    row = Request(key=0, sampling=PLAIN, messages=[{"role": "user", "content": "a"}])
    prompts, errors = measured(
        opened(engine={"chat_template": str(silent)}), [row, *texts("a")]
    )

    assert "has no tokens" in str(errors[0])
    assert len(prompts) == 1


def test_no_rows_are_no_prompts() -> None:
    assert len(measured(opened(), [])[0]) == 0


@pytest.mark.parametrize(
    ("policy", "kept"), [("truncate_left", "fgh"), ("truncate_right", "\x00ab")]
)
def test_truncation_keeps_one_end(policy: str, kept: str) -> None:
    measure = opened(validate={"too_long": policy}, engine={"max_model_len": 8})
    rows = texts("abcdefgh", "a", sampling=Sampling(max_tokens=5))
    prompts, errors = measured(measure, rows)

    assert errors == {}
    long, short = prompts.row_ids()
    assert long.tolist() == [0 if c == "\x00" else 5 + ord(c) for c in kept]
    assert short.tolist() == [0, 5 + 97]
    assert prompts.max_tokens == [5, 5]


def test_no_truncation_makes_room_where_the_answer_alone_is_too_long() -> None:
    measure = opened(validate={"too_long": "truncate_left"}, engine={"max_model_len": 8})
    _, errors = measured(measure, texts("a", "a" * 20, sampling=Sampling(max_tokens=8)))

    assert [type(error) for error in errors.values()] == [TooLong, TooLong]
    assert all("lower `max_tokens`" in str(error) for error in errors.values())
    assert not any("truncate_left" in str(error) for error in errors.values())


def test_a_cut_prompt_goes_to_an_endpoint_as_ids_and_a_cut_conversation_does_not() -> None:
    measure = opened(WIRE, validate={"too_long": "truncate_right"}, engine={"max_model_len": 4})
    message = {"role": "user", "content": "abcdef"}
    rows = [
        Request(key=0, sampling=PLAIN, text="abcdef", wire=b'"abcdef"', wire_field="prompt"),
        Request(key=1, sampling=PLAIN, messages=[message], wire=b"[]", wire_field="messages"),
        Request(key=2, sampling=PLAIN, text="a", wire=b'"a"', wire_field="prompt"),
    ]
    prompts, errors = measured(measure, rows)

    assert prompts.wires == [json.dumps([0, 102, 103], separators=(",", ":")).encode(), b'"a"']
    assert list(errors) == [1]
    assert "messages that an endpoint is sent are not cut" in str(errors[1])
    assert "truncate_left" not in str(errors[1])


def test_the_jobs_own_limit_comes_before_the_engines() -> None:
    _, errors = measured(opened(engine={"max_model_len": 3}), texts("a", "ab"))

    assert list(errors) == [1]


def test_an_endpoint_without_tokenizer_gets_rows_uncounted() -> None:
    measure = open_measure(Job(), None, WIRE)
    sampling = Sampling(max_tokens=100_000)
    rows = [Request(key=4, sampling=sampling, text="a", wire=b'"a"', wire_field="prompt")]
    prompts, errors = measured(measure, rows)

    assert errors == {}
    assert (prompts.wires, prompts.wire_fields) == ([b'"a"'], ["prompt"])
    assert (prompts.stops.tolist(), prompts.max_tokens) == ([0], [100_000])
    assert measure.identity() == {"tokenizer": "", "template": ""}


def test_what_needs_a_tokenizer_is_refused_without_one() -> None:
    with pytest.raises(ConfigError, match="takes token ids"):
        open_measure(Job(), None, ALL)
    job = Job.model_validate({"validate": {"too_long": "clamp_max_tokens"}})
    with pytest.raises(ConfigError, match="counts tokens"):
        open_measure(job, None, WIRE)


def test_ids_beyond_the_vocabulary_are_row_errors() -> None:
    rows = [
        Request(key=0, sampling=PLAIN, ids=[5, 261]),
        Request(key=1, sampling=PLAIN, ids=[260]),
    ]
    prompts, errors = measured(opened(), rows)

    assert "token id 261 at position 1, expected ids from 0 to 260" in str(errors[0])
    assert prompts.ids.tolist() == [260]


@pytest.mark.parametrize("tokenizer", [tiny(), ByteTokenizer()], ids=["json", "bytes"])
def test_half_a_character_fails_its_row_alone(tokenizer: Any) -> None:
    prompts, errors = measured(opened(tokenizer=tokenizer), texts("a", "\ud800", "b"))

    assert list(errors) == [1]
    assert "half a surrogate pair" in str(errors[1])
    assert len(prompts) == 2


@pytest.mark.parametrize("file", ["input.jsonl", "input_escaped.jsonl"])
def test_case_63_counts_are_those_of_the_characters(file: str) -> None:
    case = Case("63", file=file)

    counts = {
        id: row["prompt_tokens"]
        for id, row in expected("63", "expected_token_counts.jsonl").items()
    }
    assert {id: len(ids) for id, ids in case.ids.items()} == counts


def test_identity_changes_with_the_template(tmp_path: Any) -> None:
    other = tmp_path / "t.jinja"
    other.write_text("{{ messages }}")
    changed = opened(engine={"chat_template": str(other)}).identity()

    assert changed["tokenizer"] == opened().identity()["tokenizer"]
    assert changed["template"] != opened().identity()["template"]


def test_where_conversations_can_be_rendered() -> None:
    assert has_template(Job(), tiny())
    assert not has_template(Job(), ByteTokenizer())
    assert not has_template(Job(), None)
    assert has_template(Job.model_validate({"engine": {"chat_template": "x"}}), ByteTokenizer())


@pytest.mark.parametrize("limits", [ALL, WIRE])
@pytest.mark.parametrize("kind", ["text", "chat"])
def test_a_text_that_surely_does_not_fit_is_not_counted(limits: Limits, kind: str) -> None:
    long = "lorem ipsum " * 200_000
    chat = Request(key=1, sampling=PLAIN, messages=[{"role": "user", "content": long}])
    request = chat if kind == "chat" else texts(long)[0]
    measure = opened(limits, engine={"chat_template": str(CHAT)})

    prompts, errors = measured(measure, [*texts("a"), request, *texts("b")])

    assert len(prompts) == 2
    assert list(errors) == [1]
    assert errors[1].kind == "too_long"
    assert f"at least {len(long) // len('<|im_start|>')}"[:-1] in str(errors[1])
    assert "limit 512" in str(errors[1])


def test_what_is_to_be_cut_is_encoded_however_long() -> None:
    measure = opened(validate={"too_long": "truncate_right"}, engine={"max_model_len": 8})

    prompts, errors = measured(measure, texts("b" * 1_500_000))

    assert errors == {}
    assert len(prompts.ids) == 7
