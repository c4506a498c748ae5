"""Errors: one sentence each, readable after a trip between processes."""

from __future__ import annotations

import inspect
import pickle

import pytest

from rowmill import errors
from rowmill.errors import RowmillError

FIELDS: dict[str, dict[str, object]] = {
    "SinkFailed": {"sink": "lancedb:///a?table=t", "reason": "it is gone"},
    "BadJob": {"where": "job.toml", "mistakes": ["one", "two"]},
    "UnknownName": {"what": "engine", "name": "ech", "known": ["echo", "http"]},
    "MissingExtra": {"what": "aiohttp", "extra": "http"},
    "TooLong": {"prompt_tokens": 3012, "asked_tokens": 0, "limit_tokens": 512},
    "StorageError": {"path": "out/x", "reason": "No space left on device"},
    "InputChanged": {"path": "in.jsonl"},
}
CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, RowmillError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind: type[RowmillError]) -> None:
    error = kind(**FIELDS.get(kind.__name__, {"reason": "`x` is 1, expected 2; set it to 2"}))

    again = pickle.loads(pickle.dumps(error))

    assert (type(error), str(error), error.fields) == (type(again), str(again), again.fields)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_tree_in_the_module_names_every_class(kind: type[RowmillError]) -> None:
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__


def test_several_mistakes_are_named_at_once() -> None:
    error = errors.BadJob(where="job.toml", mistakes=["`a` is 1", "`b` is 2"])

    assert "job.toml: 2 mistakes\n  - `a` is 1\n  - `b` is 2" == str(error)


def test_a_near_name_is_offered() -> None:
    error = errors.UnknownName(what="engine", name="ech", known=["http", "echo"])

    assert "unknown engine `ech`; did you mean `echo`? known: `echo`, `http`" == str(error)


def test_a_prompt_over_the_limit_names_its_length_and_the_limit() -> None:
    alone = errors.TooLong(prompt_tokens=513, asked_tokens=1, limit_tokens=512)
    together = errors.TooLong(prompt_tokens=500, asked_tokens=13, limit_tokens=512)

    assert str(alone).startswith("513 prompt tokens, limit 512")
    assert str(together).startswith("500 prompt tokens + 13 `max_tokens` = 513, limit 512")
