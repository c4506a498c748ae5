"""Batch LLM inference: rows in files in, rows with answers out, never losing a row."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowmill.config import Job as Job
    from rowmill.errors import RowmillError as RowmillError
    from rowmill.events import Progress as Progress
    from rowmill.events import Summary as Summary
    from rowmill.executors import run as run
    from rowmill.job_file import load_job as load_job
    from rowmill.rehearse import check as check
    from rowmill.rows import Outcome as Outcome
    from rowmill.stream import infer as infer

__version__ = "0.1.0"

_HOMES = {
    "Job": "rowmill.config",
    "Outcome": "rowmill.rows",
    "Progress": "rowmill.events",
    "RowmillError": "rowmill.errors",
    "Summary": "rowmill.events",
    "check": "rowmill.rehearse",
    "infer": "rowmill.stream",
    "load_job": "rowmill.job_file",
    "run": "rowmill.executors",
}
"""Where each public name lives; imported at its first use, so that `import rowmill` costs nothing."""

__all__ = [
    "Job",
    "Outcome",
    "Progress",
    "RowmillError",
    "Summary",
    "__version__",
    "check",
    "infer",
    "load_job",
    "run",
]


def __getattr__(name: str) -> Any:
    """A public name, imported from its home (PEP 562)."""
    if name not in _HOMES:
        msg = f"module `rowmill` has no attribute `{name}`"
        raise AttributeError(msg)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
