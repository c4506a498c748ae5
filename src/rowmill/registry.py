"""Name -> module, imported when asked for: built-ins and plugins alike.

Promises: looking a name up imports that one module and nothing else;
a plugin's entry point has the same standing as a built-in, but cannot replace one.
Knows nothing of: what the modules hold.
Memory: the tables below.
"""

from __future__ import annotations

import importlib
from typing import Any

from rowmill import errors

BUILT_IN: dict[str, dict[str, str]] = {
    "engines": {
        "echo": "rowmill.engines.echo",
        "http": "rowmill.engines.http",
        "llamacpp": "rowmill.engines.llamacpp",
        "onnx": "rowmill.engines.onnx",
        "sglang": "rowmill.engines.sglang",
        "transformers": "rowmill.engines.transformers",
        "vllm": "rowmill.engines.vllm",
    },
    "sinks": {
        "lancedb": "rowmill.write.keyed.lancedb",
        "milvus": "rowmill.write.keyed.milvus",
        "pgvector": "rowmill.write.keyed.pgvector",
        "qdrant": "rowmill.write.keyed.qdrant",
    },
    "executors": {
        "local": "rowmill.executors.local",
        "ray": "rowmill.executors.ray",
    },
}
"""Group -> name -> module. Entry points of the group `rowmill.GROUP` name modules in the same way."""


def has(group: str, name: str) -> bool:
    """Whether `name` is registered, without importing what it names."""
    return name in BUILT_IN.get(group, {}) or name in names(group)


def names(group: str) -> list[str]:
    """Every name of a group, sorted, without importing anything."""
    from importlib.metadata import entry_points

    plugins = {point.name for point in entry_points(group=f"rowmill.{group}")}
    return sorted(plugins | set(BUILT_IN.get(group, {})))


def load(group: str, name: str, *, what: str = "") -> Any:
    """The module (or object) registered under `name`.

    Args:
        group: `engines`, or another key of `BUILT_IN`.
        name: What a job calls it.
        what: How a message names such a thing; the group without its plural s by default.

    Raises:
        UnknownName: No such name in the group.
    """
    built_in = BUILT_IN.get(group, {}).get(name)
    if built_in:
        return importlib.import_module(built_in)
    # Only now: it takes longer to import than all else here.
    from importlib.metadata import entry_points

    for point in entry_points(group=f"rowmill.{group}", name=name):
        return point.load()
    raise errors.UnknownName(
        what=what or group.removesuffix("s"), name=name, known=names(group)
    )
