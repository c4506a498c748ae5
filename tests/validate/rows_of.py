"""Lines through a recipe, for the tests beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rowmill.config import Job
from rowmill.errors import RowError
from rowmill.rows import Limits, Request, Row, Sampling
from rowmill.validate import Recipe, compile_recipe, validate

CASES = Path(__file__).parent.parent / "golden" / "cases"
ALL = Limits(sampling=Sampling.__struct_fields__[:-1])
WIRE = Limits(takes="wire", sampling=Sampling.__struct_fields__)


def recipe(limits: Limits = ALL, *, chat_template: bool = True, **job: Any) -> Recipe:
    return compile_recipe(Job(**job), limits=limits, chat_template=chat_template)


def line(**columns: Any) -> bytes:
    return json.dumps(columns).encode()


def ask(raw: bytes, by: Recipe | None = None, /, **job: Any) -> Request:
    return validate(Row(7, raw), by or recipe(**job))


def refusal(raw: bytes, by: Recipe | None = None, /, **job: Any) -> str:
    """The sentence of the row error that a line ends as."""
    try:
        request = ask(raw, by, **job)
    except RowError as error:
        return f"{error.kind}: {error}"
    message = f"no error, but {request}"
    raise AssertionError(message)


def fates(case: str, file: str = "input.jsonl", **job: Any) -> list[Request | RowError]:
    """What each line of a case becomes."""
    by = recipe(**job)
    found: list[Request | RowError] = []
    folder = next(CASES.glob(f"{case}-*"))
    for i, raw in enumerate((folder / file).read_bytes().split(b"\n")):
        if not raw.strip():
            continue
        try:
            found.append(validate(Row(i, raw), by))
        except RowError as error:
            found.append(error)
    return found


def by_id(found: list[Request | RowError], case: str) -> dict[str, Request | RowError]:
    """Fates by the ids of a case's lines."""
    folder = next(CASES.glob(f"{case}-*"))
    lines = (folder / "input.jsonl").read_text("utf-8").splitlines()
    ids = [json.loads(raw)["id"] for raw in lines]
    return dict(zip(ids, found, strict=True))
