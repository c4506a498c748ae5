"""transformers on a CPU: rows side by side, beside `generate` in a loop, row by row.

Rows have prompts and answers of mixed lengths, greedy, to their full length. Slices of the rows are given to both in
turn, so that both meet the same load of the machine; models are loaded once. The engine is fed as a run feeds it: two
batches in flight. Answers of both are compared, token for token.

    python benchmarks/transformers_cpu.py --model FOLDER --rows 500

Needs torch and transformers: `make vllm-cpu` makes an environment that has them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transformers

from rowmill.config import EngineConfig
from rowmill.engines import transformers as adapter
from rowmill.rows import Outcome, Prompts, Sampling

GREEDY = Sampling(temperature=0, ignore_eos=True, return_token_ids=True)


class InFlight:
    """A feed that keeps so many rows in flight."""

    def __init__(self, prompts: Prompts, rows: int) -> None:
        self._prompts, self._rows = prompts, rows
        self._next = self.answered = 0

    def take(self, *, wait: bool) -> Prompts | None:
        del wait
        start, stop = self._next, min(len(self._prompts), self.answered + self._rows)
        if start == len(self._prompts):
            return None
        self._next = max(start, stop)
        return self._prompts.slice(start, self._next)


def drawn(rows: int, vocabulary: int) -> Prompts:
    """Rows with prompts of 4 to 200 tokens (mean 40) and answers of 1 to 128 (mean 30)."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.4, 0.8, rows), 4, 200).astype(np.int64)
    answers = np.clip(random.lognormal(3.1, 0.8, rows), 1, 128).astype(int).tolist()
    return Prompts(
        keys=list(range(rows)),
        ids=random.integers(10, vocabulary, int(lengths.sum())).astype(np.uint32),
        stops=np.cumsum(lengths),
        max_tokens=answers,
        samplings=[GREEDY],
        sampling_of=[0] * rows,
        wires=[],
        wire_fields=[],
    )


def one_by_one(model: Any, prompts: Prompts) -> list[list[int]]:
    found = []
    for ids, most in zip(prompts.row_ids(), prompts.max_tokens, strict=True):
        given = torch.from_numpy(ids.astype(np.int64))[None]
        with torch.inference_mode():
            answer = model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=most,
                min_new_tokens=most,
                do_sample=False,
                pad_token_id=0,
            )
        found.append(answer[0, given.shape[1] :].tolist())
    return found


def side_by_side(engine: adapter.Transformers, prompts: Prompts) -> list[list[int]]:
    feed = InFlight(prompts, 2 * engine.limits.seats)
    outcomes: list[Outcome] = []
    for some in engine.run(feed):
        outcomes += some
        feed.answered += len(some)
    outcomes.sort(key=lambda outcome: outcome.key)
    return [outcome.choices[0].token_ids or [] for outcome in outcomes]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--model", required=True)
    asked.add_argument("--rows", type=int, default=500)
    asked.add_argument("--slices", type=int, default=5)
    asked.add_argument("--seats", type=int, default=None)
    asked.add_argument("--threads", type=int, default=None)
    given = asked.parse_args()
    settings = {"threads": given.threads} if given.threads else {}
    engine = adapter.open(
        EngineConfig(name="transformers", model=given.model, seats=given.seats, **settings)
    )
    alone = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    prompts = drawn(given.rows, alone.config.vocab_size)
    tokens = len(prompts.ids), sum(prompts.max_tokens)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, ", end="")
    print(
        f"{torch.get_num_threads()} threads, {given.rows} rows, {tokens[0]:,} + {tokens[1]:,} tokens"
    )
    edges = np.linspace(0, given.rows, given.slices + 1).astype(int).tolist()
    ratios, seconds, equal = [], np.zeros(2), 0
    for start, stop in pairwise(edges):
        part = prompts.slice(start, stop)
        times, found = [], []
        for ask, whom in ((one_by_one, alone), (side_by_side, engine)):
            began = time.monotonic()
            found.append(ask(whom, part))
            times.append(time.monotonic() - began)
        ratios.append(times[0] / times[1])
        seconds += times
        equal += sum(map(list.__eq__, *found))
        print(
            f"rows {start} to {stop}: {times[0]:.1f} s, {times[1]:.1f} s, {ratios[-1]:.2f}x",
            flush=True,
        )
    batch = engine._batch  # noqa: SLF001 - how much of the prompts' work was padding
    print(
        f"one by one {seconds[0]:.1f} s, side by side {seconds[1]:.1f} s: median {statistics.median(ratios):.2f}x"
    )
    print(
        f"{equal} of {given.rows} answers equal, padding {batch.padding / batch.computed:.1%} of prompt tokens"
    )


if __name__ == "__main__":
    main()
