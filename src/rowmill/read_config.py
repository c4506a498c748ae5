"""`[read]`: how the files of a job's input are understood.

Promises: a value out of range never passes.
Knows nothing of: files, the rest of the job.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from rowmill.part import Part


class ReadConfig(Part):
    """`[read]`: how the files of the input are understood."""

    format: Literal["auto", "jsonl", "json", "csv", "tsv", "parquet", "arrow"] = "auto"
    """What the files hold. `auto`: told by their first bytes and their suffix, each file by itself."""
    delimiter: str = Field(default="", max_length=1)
    """CSV: what parts fields; `\\t` is a tab. Empty: a tab in `.tsv` files, a comma in others."""
    quote: str = Field(default='"', max_length=1)
    """CSV: what fields are quoted with; empty: quotes mean nothing."""
    header: bool = True
    """CSV: the first record names the columns; else they are `column1`, `column2`, ..."""
    partitions: Literal["hive", "off"] = "hive"
    """Folders such as `region=007` are columns of the files in them (text, never numbers), or mean nothing."""
    links: Literal["refuse", "follow", "skip"] = "refuse"
    """Symbolic links that lead out of a folder, or of where a pattern begins: refused, read, or passed over and counted."""

    @field_validator("delimiter", mode="before")
    @classmethod
    def _tab_by_its_escape(cls, value: Any) -> Any:
        """A command line has no way to write a tab."""
        return "\t" if value == "\\t" else value
