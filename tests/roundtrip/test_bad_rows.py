"""What can be read of a bad row stands in results of every format, whatever the input was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rowmill.read import BadLine
from rowmill.rows import AnyRow
from tests.roundtrip.whole import INPUTS, Answered, lay, lines_of, records_of, table_of

NAMES = ["id", "note", "prompt"]


def laid(folder: Path, kind: str) -> Path:
    """Three rows, the second of which is bad: its `prompt` cannot be read."""
    if kind == "csv":
        path = folder / "in.csv"
        path.write_bytes(b"id,note,prompt\na,x,p\nb,y\nc,z,p\n")
    elif kind == "jsonl":
        lines = [
            json.dumps(dict(zip(NAMES, row, strict=True))) for row in ("axp", "byp", "czp")
        ]
        lines[1] = lines[1].replace("}", ', "prompt": "q"}')
        path = folder / "in.jsonl"
        path.write_text("\n".join(lines))
    else:
        prompts = pa.array([b"p", b"\xff", b"p"]).view(pa.string())
        columns = [pa.array(["a", "b", "c"]), pa.array(["x", "y", "z"]), prompts]
        path = lay(folder / "in", pa.RecordBatch.from_arrays(columns, names=NAMES), kind)
    return path


def is_bad(row: AnyRow | BadLine) -> bool:
    return isinstance(row, BadLine) or b'"b"' in row.line


@pytest.mark.parametrize("target", ["jsonl", "csv", "parquet", "arrow"])
@pytest.mark.parametrize("kind", [kind for kind in INPUTS if kind != "jsonl.gz"])
def test_the_other_columns_of_a_bad_row_are_kept(
    tmp_path: Path, kind: str, target: str
) -> None:
    run = Answered(tmp_path, [laid(tmp_path, kind)], is_bad=is_bad)

    parts = run.publish(target)

    found: list[dict[str, Any]]
    if target == "jsonl":
        found = [json.loads(line) for line in lines_of(parts, target)]
        assert "prompt" in found[1] or kind == "jsonl"
    elif target == "csv":
        found = list(records_of(parts, target))
    else:
        found = table_of(parts, target).to_pylist()
    rows = [[row.get(name) for name in NAMES] for row in found]
    assert rows == [["a", "x", "p"], ["b", "y", None], ["c", "z", "p"]]
