"""What an in-process engine was given: the echo's token ids back to text."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import Tokenizer

from tests.cases.command import TINY
from tests.cases.compare import Record, by_id

SEE_ALL = {"sampling.return_token_ids": True, "sampling.max_tokens": 1000}
"""Settings with which the echo engine answers the whole prompt, ids and all."""


@cache
def tiny() -> Any:
    """The tokenizer of the cases: one token a byte, five control tokens."""
    return Tokenizer.from_file(str(TINY / "tokenizer.json"))


def ids_of(record: Record) -> list[int]:
    """Token ids of a row that was run with `SEE_ALL`."""
    (choice,) = record["rowmill_choices"]
    ids: list[int] = choice["token_ids"]
    assert len(ids) == record["rowmill_prompt_tokens"]
    return ids


def prompts_of(records: list[Record]) -> dict[Any, str]:
    """Prompt by id of all rows that were answered, control tokens written out."""
    answered = [record for record in records if record["rowmill_error"] is None]
    return {
        id_: tiny().decode(ids_of(record), skip_special_tokens=False)
        for id_, record in by_id(answered).items()
    }


def num_special(record: Record) -> int:
    """Control tokens among a row's token ids."""
    special = {i for i, t in tiny().get_added_tokens_decoder().items() if t.special}
    return sum(i in special for i in ids_of(record))
