"""Requests through an open Measure, for the tests beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rowmill.config import EngineConfig, Job
from rowmill.errors import RowError
from rowmill.measure import Measure, open_measure
from rowmill.rows import Limits, Prompts, Request, Row, Sampling
from rowmill.tokens import Tokenizer, open_tokenizer
from rowmill.validate import compile_recipe, validate

GOLDEN = Path(__file__).parent.parent / "golden"
ALL = Limits(max_model_tokens=512, sampling=Sampling.__struct_fields__[:-1])
WIRE = Limits(takes="wire", max_model_tokens=512, sampling=Sampling.__struct_fields__)
PLAIN = Sampling()


def tiny() -> Tokenizer:
    tokenizer = open_tokenizer(EngineConfig(tokenizer=str(GOLDEN / "tiny_tokenizer")))
    assert tokenizer is not None
    return tokenizer


def opened(limits: Limits = ALL, *, tokenizer: Tokenizer | None = None, **job: Any) -> Measure:
    return open_measure(Job(**job), tokenizer or tiny(), limits)


def measured(measure: Measure, requests: list[Request]) -> tuple[Prompts, dict[int, RowError]]:
    errors: dict[int, RowError] = {}
    prompts = measure.prompts(requests, errors.__setitem__)
    kept = [request.key for i, request in enumerate(requests) if i not in errors]
    assert prompts.keys == kept
    for column in (prompts.stops, prompts.max_tokens, prompts.sampling_of):
        assert len(column) == len(kept)
    assert len(prompts.ids) == (int(prompts.stops[-1]) if kept else 0)
    return prompts, errors


class Case:
    """What became of a case's rows, by their ids."""

    def __init__(
        self, number: str, *, limits: Limits = ALL, file: str = "input.jsonl", **job: Any
    ) -> None:
        folder = next((GOLDEN / "cases").glob(f"{number}-*"))
        template = folder / "template.jinja"
        engine = {"chat_template": str(template)} if template.exists() else {}
        job = {"engine": engine, **job}
        recipe = compile_recipe(Job(**job), limits=limits, chat_template=True)
        self.measure = opened(limits, **job)
        self.errors: dict[str, RowError] = {}
        requests = []
        for i, raw in enumerate((folder / file).read_bytes().splitlines()):
            try:
                requests.append(validate(Row(i, raw), recipe))
            except RowError as error:
                self.errors[json.loads(recipe.id_of(Row(i, raw)))] = error
        ids = {request.key: json.loads(request.id) for request in requests}
        prompts, errors = measured(self.measure, requests)
        self.errors |= {ids[requests[i].key]: error for i, error in errors.items()}
        names = [ids[key] for key in prompts.keys]
        self.ids = dict(zip(names, [part.tolist() for part in prompts.row_ids()], strict=True))
        self.max_tokens = dict(zip(names, prompts.max_tokens, strict=True))

    def texts(self) -> dict[str, str]:
        return {id: tiny().decode(ids, skip_special=False) for id, ids in self.ids.items()}


def expected(number: str, file: str) -> dict[str, dict[str, Any]]:
    folder = next((GOLDEN / "cases").glob(f"{number}-*"))
    rows = map(json.loads, (folder / file).read_text("utf-8").splitlines())
    return {row["id"]: row for row in rows}
