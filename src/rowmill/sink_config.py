"""`[sink]`: the vector store of a job.

Promises: an address with a password in it never passes, so what passes may be written down.
Knows nothing of: stores, the rest of the job.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from rowmill.errors import BadSink
from rowmill.part import Part
from rowmill.sink_address import parse_sink


class SinkConfig(Part):
    """`[sink]`: a vector store that vectors are loaded into as the run goes; `sink = "ADDRESS"` is short for its `to`."""

    to: str = ""
    """Address: `pgvector://USER:env:NAME@HOST/DATABASE?table=T`, `qdrant+http://HOST:6333?collection=C`,
    `milvus+http://HOST:19530?collection=C` or `lancedb:///FOLDER?table=T`. Passwords by `env:NAME` only."""
    metric: Literal["cosine", "l2", "dot"] = "cosine"
    """What near means in the store: its index is built for it, and a table with another one is refused."""
    columns: tuple[str, ...] | None = None
    """Columns of the input that are kept beside the vector. None: all."""
    key: str = ""
    """Column whose value is a row's key in the store. Empty: the row's id where there is one and ids do not repeat,
    else `FILE:LINE`."""
    vector: str = "embedding"
    """Column (field) that the vector is kept in."""
    index: Literal["auto", "none"] = "auto"
    """Once all is loaded, build the index that searches need; or leave that to you."""
    max_text_bytes: int | None = Field(default=None, gt=0)
    """Most bytes of a text in UTF-8. None: what the store takes."""
    long_text: Literal["error", "truncate"] = "error"
    """Longer texts: the row is not loaded, and told; or cut at the end of a character."""
    retry_s: float = Field(default=300.0, ge=0)
    """So long a store that does not answer is tried again, before the rest is left to `rowmill export`."""

    @field_validator("to")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        """Here and not later: what stands in a job is written down."""
        try:
            return parse_sink(value).text if value else ""
        except BadSink as error:
            raise ValueError(str(error)) from None

    @field_validator("columns", mode="before")
    @classmethod
    def _one_column_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value
