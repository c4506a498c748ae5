"""Results -> accuracy a language, beside the baseline that always says the more frequent label.

Run: `python examples/sentiment/accuracy.py out/sentiment`
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LANGUAGES = {"en": "English", "zh": "Chinese"}


def read_results(output: Path) -> list[dict[str, Any]]:
    """Every row under `output`/results."""
    parts = sorted((output / "results").glob("part-*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]


def score(rows: list[dict[str, Any]]) -> str:
    """One line: rows, share right, and the share that no model at all would get right."""
    answered = [row for row in rows if row["rowmill_status"] == "ok"]
    right = sum(row["rowmill_text"].strip() == row["label"] for row in answered)
    label, most = Counter(row["label"] for row in rows).most_common(1)[0]
    failed = f", {len(rows) - len(answered)} failed" if len(answered) < len(rows) else ""
    return (
        f"{right / len(rows):6.1%} right ({right} of {len(rows)}{failed});"
        f' always "{label}": {most / len(rows):.1%}'
    )


def main(output: str) -> int:
    rows = read_results(Path(output))
    if not rows:
        print(f"no results under {output}", file=sys.stderr)
        return 1
    for lang, name in LANGUAGES.items():
        print(f"{name:8} {score([row for row in rows if row['lang'] == lang])}")
    print(f"{'all':8} {score(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["out"]))
