"""Pairs in tokens: what stands around them, what is cut, and that data is no control token."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from rowmill.config import Job
from rowmill.measure import open_measure
from rowmill.rows import Limits, Pair, Prompts, Request, Sampling
from rowmill.tokens.hugging_face import JsonTokenizer

NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "[", "]", "SEP"]
CLS, SEP, A, B, C = 2, 3, 4, 5, 6


def tokenizer() -> JsonTokenizer:
    library = tokenizers.Tokenizer(
        models.WordLevel({name: at for at, name in enumerate(NAMES)}, unk_token="[UNK]")
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(["[CLS]", "[SEP]"])
    library.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return JsonTokenizer(library.to_str(), named_tokens={})


def measured(*documents: str, query: str = "a", limit: int = 0, **job: Any) -> Prompts:
    measure = open_measure(
        Job.model_validate({"kind": "rerank", **job}),
        tokenizer(),
        Limits(max_model_tokens=limit),
    )
    request = Request(7, Sampling(), text=query, documents=list(documents))
    return measure.prompts([request], lambda _, error: pytest.fail(str(error)))


def test_a_pair_stands_as_the_template_says() -> None:
    found = measured("b c", "c")

    assert found.ids.tolist() == [CLS, A, SEP, B, C, SEP, CLS, A, SEP, C, SEP]
    assert found.pairs == {7: [Pair(6, 3), Pair(5, 3)]}


def test_control_tokens_in_data_are_text() -> None:
    assert measured("[SEP]").ids.tolist() == [CLS, A, SEP, 7, 9, 8, SEP]
    parsed = measured("[SEP]", validate={"special_tokens": "parse"})
    assert parsed.ids.tolist() == [CLS, A, SEP, SEP, SEP]


def test_documents_are_cut_and_queries_are_not() -> None:
    found = measured("b c b c", "b", limit=6, validate={"too_long": "truncate_right"})

    assert found.ids.tolist() == [CLS, A, SEP, B, C, SEP, CLS, A, SEP, B, SEP]
    assert found.cut_from == {7: 8 + 5}
    with pytest.raises(
        pytest.fail.Exception, match=r'8 prompt tokens.*"truncate_right"`, which cuts documents'
    ):
        measured("b c b c", limit=6)


@pytest.mark.parametrize("policy", ["error", "truncate_right"])
def test_a_query_that_fills_the_context_is_told_what_helps_and_no_more(policy: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="limit 6") as caught:
        measured("b", query="a a a a a", limit=6, validate={"too_long": policy})

    assert "and queries are not cut; raise `engine.max_model_len`" in str(caught.value)
    assert "truncate" not in str(caught.value)
