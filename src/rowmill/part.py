"""What every table of the job file is: frozen, closed to unknown keys, its fields documented by their docstrings.

Promises: an unknown key or a wrong type never passes.
Knows nothing of: which tables there are.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A table of the job file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
