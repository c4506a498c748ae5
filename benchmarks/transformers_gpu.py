"""transformers on a GPU: rowmill's padded and paged rows beside the library's own `generate_batch`, and `generate` in batches
and alone.

    python benchmarks/transformers_gpu.py --tokenizer DIR --shape 0.5b --rows 1000 --json transformers_gpu.json
    python benchmarks/transformers_gpu.py --model FOLDER --device cpu --dtype float32 --rows 24 --rounds 1

Rows have prompts and answers of mixed lengths, greedy, to their full length, the same for all; the order of contenders
rotates with the round. A shape has random weights, which are written to a folder first. `alone` answers a tenth of the
rows: its figure is for so many. FILE.json holds what is known after each run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from shapes import make_model

HERE = Path(__file__).resolve().parent
ALONE_SHARE = 10


def neighbour(name: str) -> Any:
    """Another benchmark as a module."""
    spec = importlib.util.spec_from_file_location(
        f"rowmill_benchmark_{name}", HERE / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_weights(shape: str, into: Path, tokenizer: Path, dtype: str, device: str) -> Path:
    """A shape with random weights, on the disk."""
    folder = make_model(shape, into, tokenizer)
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(1)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype)
        )
    model.save_pretrained(folder)
    return folder


class Library:
    """The library's own ways."""

    def __init__(self, folder: Path, dtype: str, device: str, seats: int) -> None:
        self._device, self._seats = device, seats
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).to(device)
        self._model.eval()

    def alone(self, prompts: Any) -> list[list[int]]:
        """`generate`, row by row."""
        return [
            self._generated([ids], most)[0]
            for ids, most in zip(prompts.row_ids(), prompts.max_tokens, strict=True)
        ]

    def batches(self, prompts: Any) -> list[list[int]]:
        """`generate` on rows sorted by their answers' length, so many at once, padded on the left."""
        ids, most = list(prompts.row_ids()), prompts.max_tokens
        order = sorted(range(len(ids)), key=lambda i: (most[i], len(ids[i])))
        found: list[list[int]] = [[] for _ in ids]
        for start in range(0, len(order), self._seats):
            chosen = order[start : start + self._seats]
            answers = self._generated([ids[i] for i in chosen], most[chosen[-1]])
            for i, answer in zip(chosen, answers, strict=True):
                found[i] = answer[: most[i]]
        return found

    def continuous(self, prompts: Any) -> list[list[int]]:
        """`generate_batch`, by the manager that it makes, for each row has a length of its own."""
        config = transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=max(prompts.max_tokens),
            eos_token_id=-1,
            pad_token_id=0,
        )
        # What it would take by itself is nine tenths of the memory that is free, also of a machine's without a GPU.
        bounds = {"max_memory_percent": 0.5} if "cuda" in self._device else {"num_blocks": 32}
        told = transformers.ContinuousBatchingConfig(
            max_requests_per_batch=self._seats, max_batch_tokens=8192, **bounds
        )
        places: dict[str, int] = {}
        found: list[list[int]] = [[] for _ in prompts.keys]
        with (
            torch.no_grad(),
            self._model.continuous_batching_context_manager(
                generation_config=config, continuous_batching_config=told, timeout=30
            ) as manager,
        ):
            for i, ids in enumerate(prompts.row_ids()):
                name = manager.add_request(
                    ids.tolist(), max_new_tokens=prompts.max_tokens[i], eos_token_id=-1
                )
                places[str(name)] = i
            left = len(places)
            while left:
                result = manager.get_result(timeout=60)
                if result is None:
                    reason = "generate_batch gave no answer in a minute"
                    raise RuntimeError(reason)
                if result.is_finished():
                    left -= 1
                    if result.error is not None:
                        raise RuntimeError(result.error)
                    found[places[result.request_id]] = result.generated_tokens
        return found

    def _generated(self, rows: list[Any], most: int) -> list[list[int]]:
        width = max(map(len, rows))
        given = np.zeros((len(rows), width), np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for i, ids in enumerate(rows):
            given[i, width - len(ids) :] = ids
            mask[i, width - len(ids) :] = 1
        with torch.inference_mode():
            answer = self._model.generate(
                torch.from_numpy(given).to(self._device),
                attention_mask=torch.from_numpy(mask).to(self._device),
                max_new_tokens=most,
                min_new_tokens=most,
                do_sample=False,
                pad_token_id=0,
            )
        found: list[list[int]] = answer[:, width:].tolist()
        return found


def table(found: dict[str, Any]) -> list[str]:
    """Markdown: a line a contender; equal answers are those of `rowmill`."""
    lines = [
        "| way | median s (range) | runs | rows/s | beside rowmill | answers as rowmill's |"
    ]
    lines.append("|---|---|---|---|---|---|")
    base = {
        run["round"]: run["rows"] / run["seconds"]
        for run in found["runs"]
        if run["way"] == "rowmill"
    }
    for way in dict.fromkeys(run["way"] for run in found["runs"]):
        runs = [run for run in found["runs"] if run["way"] == way and "failed" not in run]
        if not runs:
            lines.append(f"| {way} | failed | 0 | | | |")
            continue
        times = [run["seconds"] for run in runs]
        rates = [run["rows"] / run["seconds"] for run in runs]
        ratios = [
            run["rows"] / run["seconds"] / base[run["round"]]
            for run in runs
            if run["round"] in base
        ]
        beside = f"{statistics.median(ratios):.2f}x" if ratios else ""
        lines.append(
            f"| {way} | {statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f}) | {len(runs)} |"
            f" {statistics.median(rates):.1f} | {beside} | {runs[-1]['equal']} of {runs[-1]['rows']} |"
        )
    return lines


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds."""
    from rowmill.config import EngineConfig
    from rowmill.engines import transformers as adapter

    cpu = neighbour("transformers_cpu")

    def opened(batching: str) -> Any:
        return adapter.open(
            EngineConfig(
                name="transformers",
                model=str(folder),
                seats=options.seats,
                dtype=options.dtype,
                device=options.device,
                batching=batching,
                batch_tokens=512 * options.seats,
                prompt_tokens=8192,
            )
        )

    padded, paged = opened("padded"), opened("paged")
    library = Library(folder, options.dtype, options.device, options.seats)
    ways: dict[str, Callable[[Any], list[list[int]]]] = {
        "rowmill": lambda prompts: cpu.side_by_side(padded, prompts),
        "rowmill, paged": lambda prompts: cpu.side_by_side(paged, prompts),
        "generate_batch": library.continuous,
        "generate, batches": library.batches,
        "generate, alone": library.alone,
    }
    found: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu",
        "runs": [],
    }
    prompts = cpu.drawn(options.rows, 10_000)
    ends_at = time.monotonic() + options.max_seconds
    expected: list[list[int]] = []
    names = list(ways)
    for way in names:
        attempt(ways[way], prompts.slice(0, min(16, options.rows)))
    for number in range(options.rounds):
        for way in [*names[number % len(names) :], *names[: number % len(names)]]:
            if time.monotonic() > ends_at:
                return found
            rows = -(-options.rows // ALONE_SHARE) if way.endswith("alone") else options.rows
            run = {"way": way, "round": number, "rows": rows}
            began = time.monotonic()
            answers = attempt(ways[way], prompts.slice(0, rows))
            run["seconds"] = round(time.monotonic() - began, 3)
            if isinstance(answers, str):
                run["failed"] = answers
            else:
                expected = expected or (answers if way == "rowmill" else [])
                run["equal"] = sum(map(list.__eq__, answers, expected)) if expected else 0
            found["runs"].append(run)
            print(run, flush=True)
            options.json.write_text(
                json.dumps({**found, "table": table(found)}, indent=1), "utf-8"
            )
    return found


def attempt(way: Callable[[Any], list[list[int]]], prompts: Any) -> list[list[int]] | str:
    """Its answers, or why there are none: the others go on."""
    try:
        return way(prompts)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]
    finally:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--tokenizer", type=Path)
    cli.add_argument("--model", type=Path, help="a folder with weights, in place of a shape")
    cli.add_argument("--shape", default="0.5b")
    cli.add_argument("--device", default="cuda:0")
    cli.add_argument("--dtype", default="bfloat16")
    cli.add_argument("--seats", type=int, default=64)
    cli.add_argument("--rows", type=int, default=1000)
    cli.add_argument("--rounds", type=int, default=3)
    cli.add_argument("--max-seconds", type=float, default=240.0)
    cli.add_argument("--json", type=Path, default=Path("transformers_gpu.json"))
    options = cli.parse_args()
    if options.model is None and options.tokenizer is None:
        print("nothing was measured: give `--tokenizer DIR`, on a machine with a GPU")
        return
    with tempfile.TemporaryDirectory(prefix="rowmill-transformers-") as temporary:
        folder = options.model or make_weights(
            options.shape, Path(temporary), options.tokenizer, options.dtype, options.device
        )
        print("\n".join(table(measure(options, folder))))


if __name__ == "__main__":
    main()
