"""Three questions -> the packages that are nearest to each, out of the table that the demo loaded.

Run: `python examples/packages/search.py out/packages`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lancedb
import numpy as np

import rowmill

QUESTIONS = (
    "edit photographs and remove red eyes",
    "find out which process uses up all the memory",
    "play chess against the computer",
)
NEAREST = 3


def vectors(texts: tuple[str, ...], model: Path) -> list[list[float]]:
    """The questions, embedded as the rows were."""
    job = rowmill.Job(kind="embed", engine={"name": "onnx", "model": str(model)})
    rows = rowmill.infer([{"text": text} for text in texts], job)
    return [row["rowmill_embedding"] for row in rows]


def main(output: Path) -> None:
    database = lancedb.connect(output / "lance")
    table: Any = database.open_table("packages")
    print(f"{table.count_rows():,} descriptions")
    for question, vector in zip(QUESTIONS, vectors(QUESTIONS, output / "model"), strict=True):
        print(f"\n{question}")
        query = np.array(vector, np.float32)
        search = table.search(query).distance_type("cosine").limit(NEAREST)
        for found in search.to_list():
            print(f"  {1 - found['_distance']:.2f}  {found['text'][:100]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
