"""What every table of the job file is: frozen, closed to unknown keys, its fields documented by their docstrings.

Promises: an unknown key or a wrong type never passes.
Knows nothing of: which tables there are.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from typing import Any

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A table of the job file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def meaning_of(model: type[BaseModel], field: str) -> str:
    """The text behind a field in the source of its class or of one it inherits from; empty where there is none.

    Looked for when it is asked for: a run needs none of them, and pydantic, told `use_attribute_docstrings`, reads every
    class's source at import: some 0.06 s of a run of two rows, which takes 0.95.
    """
    return next(
        (texts[field] for kind in model.__mro__ if field in (texts := _texts(kind))), ""
    )


@functools.cache
def _texts(kind: type[Any]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    # Built in, or typed into a prompt: its source lies nowhere.
    except (OSError, TypeError):
        return {}
    body = ast.parse(source).body[0]
    statements = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for one, after in itertools.pairwise(statements):
        match one, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                found[name] = inspect.cleandoc(text)
    return found
