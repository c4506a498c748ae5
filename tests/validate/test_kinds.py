"""Jobs whose settings do not go with their kind, and rows of pairs that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowmill.config import Job
from rowmill.errors import ConfigError, RowError
from rowmill.rows import Limits, Request, Row
from rowmill.validate import Recipe
from rowmill.validate.recipe import compile_recipe

LABELS = {"labels": ("a", "b")}


def recipe(wire: bool = False, **job: Any) -> Recipe:
    limits = Limits(takes="wire" if wire else "ids")
    return compile_recipe(Job.model_validate(job), limits=limits, chat_template=False)


def row(found: Recipe, **columns: Any) -> Request:
    return found.request(Row(1, json.dumps(columns).encode()))


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"kind": "generate", "classify": LABELS}, "`\\[classify\\]` goes with"),
        ({"kind": "embed", "score": {"top_n": 1}}, "`\\[score\\]` goes with"),
        ({"kind": "score", "score": {"top_n": 1}}, "`score.top_n` goes with"),
        ({"kind": "classify", "sampling": {"n": 2}}, "`\\[sampling\\]` but for"),
        ({"kind": "rerank", "prompt": "{a}"}, "`prompt` goes with one text"),
        ({"kind": "rerank", "prompt_jinja": "{{ a }}"}, "`prompt_jinja` goes with"),
        ({"kind": "score", "validate": {"too_long": "truncate_left"}}, "would cut queries"),
        ({"kind": "classify", "validate": {"too_long": "chunk"}}, 'goes with `kind = "embed"`'),
        ({"kind": "classify", "classify": LABELS, "prompt": "{a} is "}, "ends with a space"),
        ({"kind": "score", "score": {"query": "x", "document": "x"}}, "are both column `x`"),
    ],
)
def test_settings_of_other_kinds_are_refused(job: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        recipe(**job)


def test_rows_of_labels_are_prompts_of_any_shape() -> None:
    found = recipe(kind="classify", classify=LABELS)

    assert row(found, prompt="is it?").text == "is it?"
    assert row(found, prompt_token_ids=[1, 2]).ids == [1, 2]
    assert row(recipe(kind="classify"), text="it is").text == "it is"


@pytest.mark.parametrize(
    "job",
    [
        {"prompt": "{prompt}"},
        {"prompt": "{sampling}"},
        {"prompt_jinja": "{{ prompt }}"},
        {"prompt_jinja": "{{ sampling }}"},
        {},
    ],
)
def test_columns_named_as_sampling_is_are_columns_as_any_where_answers_are_labels(
    job: dict[str, Any],
) -> None:
    found = recipe(kind="classify", classify=LABELS, **job)
    plain = recipe(kind="classify", classify=LABELS, prompt="x").request(Row(1, b"{}")).sampling
    odd = {
        "prompt": "is it?",
        "sampling": "by hand",
        "temperature": -300,
        "schema": "v1",
        "n": [],
    }

    for _ in range(2):  # the second time by the fast lane, where there is one
        request = row(found, **odd)
        assert request.text in ("is it?", "by hand")
        assert request.sampling == plain
    twice = b'{"prompt": "is it?", "n": 1, "n": 2, "sampling": "a"}'
    assert found.request(Row(1, twice)).sampling == plain


def test_what_a_body_says_of_sampling_is_checked_and_has_no_meaning_for_labels() -> None:
    found = recipe(kind="classify", classify=LABELS)
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions"}
    plain = row(found, prompt="x").sampling

    for _ in range(2):
        asked = row(found, **line, body={"prompt": "x", "temperature": 1, "max_tokens": 5})
        assert asked.sampling == plain
    with pytest.raises(RowError, match=r"`body\.temperature` is -1"):
        row(found, **line, body={"prompt": "x", "temperature": -1})


def test_a_pair_and_many() -> None:
    one = recipe(kind="score", score={"query": "q", "document": "d"})
    assert (row(one, q="a", d="b").text, row(one, q="a", d="b").documents) == ("a", ["b"])

    wire = row(recipe(wire=True, kind="rerank"), query="a", documents=["b", "c"])
    assert json.loads(wire.wire) == {"query": "a", "documents": ["b", "c"]}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"query": "a"}, "`documents` is missing"),
        ({"query": "", "documents": ["b"]}, "`query` is an empty string"),
        ({"query": "a", "documents": []}, "`documents` is an empty list"),
        ({"query": "a", "documents": "b"}, "expected a list of texts"),
        ({"query": "a", "documents": ["b", None]}, "`documents\\[1\\]` is null"),
        ({"query": "a", "documents": ["\ud800"]}, "half a surrogate"),
    ],
)
def test_rows_that_are_no_pairs_are_told(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(RowError, match=words):
        row(recipe(kind="rerank"), **columns)
