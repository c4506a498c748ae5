"""Job -> its identity: the settings that change answers; a run at an output goes on only with the same.

Promises: effort (seats, order, output, budgets) is not in it; models and templates are in it by what they are,
not by where they lie.
Knows nothing of: rows, files of rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rowmill import engines, registry
from rowmill.config import EngineConfig, Job
from rowmill.measure import Measure

EFFORT_TABLES = ("plan", "run", "output", "sink", "kubernetes", "ray", "telemetry")
INNER_ENGINE_FIELDS = frozenset({"embed", "classify", "score", "ranks", "media", "reasoning"})
"""What the job says elsewhere, told to the engine."""
EFFORT_ENGINE_FIELDS = INNER_ENGINE_FIELDS | {"seats", "tokenizer", "chat_template"}
"""Tokenizer and template are in the identity by what is in them, not by where they lie."""
MEDIA_IDENTITY = ("images", "audio", "send")
"""Of `[media]`, what changes answers; the rest says what may be read, and how fast. What a file holds is a row's own."""


def identity(job: Job, measure: Measure) -> dict[str, Any]:
    """Settings that change answers, flat, by dotted key."""
    tree = job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for table in EFFORT_TABLES:
        tree.pop(table, None)
    tree.pop("source", None)
    media = tree.pop("media", {})
    tree |= {f"media.{key}": media[key] for key in MEDIA_IDENTITY if key in media}
    engine = tree.pop("engine", {})
    flat = {
        f"engine.{key}": value for key, value in engine.items() if is_identity(job.engine, key)
    }
    validating = tree.pop("validate", {})
    for key in ("first_rows", "strict"):
        validating.pop(key, None)
    flat |= {f"validate.{key}": value for key, value in validating.items()}
    flat |= {f"sampling.{key}": value for key, value in tree.pop("sampling", {}).items()}
    if "engine.model" in flat:
        flat["engine.model"] = model_identity(job.engine.model)
    if job.run.limit is not None:
        flat["run.limit"] = job.run.limit
    # Which rows clash with result columns depends on it.
    flat["output.prefix"] = job.output.prefix
    return {**flat, **tree, **measure.identity()}


def is_identity(engine: EngineConfig, key: str) -> bool:
    """Whether an engine setting changes answers: all do, unless the adapter says otherwise."""
    adapter = registry.load("engines", engines.resolve(engine).name)
    return key not in EFFORT_ENGINE_FIELDS | getattr(adapter, "EFFORT", frozenset())


def model_identity(model: str) -> str:
    """A local model by name and size, wherever it lies; a served one by its name."""
    path = Path(model)
    if path.is_file():
        return f"{path.name} ({path.stat().st_size} bytes)"
    return path.name if path.is_dir() else model
