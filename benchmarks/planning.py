"""How long it takes to plan rows, beside how long a GPU will take for them.

    python benchmarks/planning.py [--rows 1000000] [--tokens 500]

Rows come in groups that begin alike, shuffled, window after window as in a run. What is timed is processor time of
the plan alone: the order, found on texts, equal rows, found on token ids, and the forecast of what comes behind it.
Tokenising is apart; ids are drawn. The GPU's time is the forecast's, for an H200 and the 1.5B shape.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from shapes import config_of

from rowmill.config import PlanConfig
from rowmill.forecast.foretold import Setting, foretell
from rowmill.forecast.gathered import Gathered
from rowmill.plan import arrange, plan
from rowmill.rows import Limits, Prompts, Request, Sampling
from rowmill.size import Budget
from rowmill.size.fit import Fit, fit
from rowmill.size.gpus import Gpu, gpu_named
from rowmill.size.shape import ModelShape, shape_of

WINDOW, ROWS_A_GROUP, SHARED, ANSWER = 8192, 16, 0.6, 32
SAMPLING = Sampling(temperature=0, max_tokens=ANSWER, ignore_eos=True)
BUDGET = Budget(0.92, 1024, 16384)
SHAPE = config_of("1.5b")


def window(
    draw: np.random.Generator, first: int, rows: int, tokens: int
) -> tuple[list[Request], Prompts]:
    """Rows as texts and as ids; four characters stand for a token."""
    shared = int(SHARED * tokens)
    groups = draw.permutation(np.arange(rows) // ROWS_A_GROUP)
    beginnings = draw.integers(97, 123, (rows // ROWS_A_GROUP + 1, shared), np.uint32)
    own = draw.integers(97, 123, (rows, tokens - shared), np.uint32)
    ids = np.concatenate([beginnings[groups], own], axis=1)
    texts = [np.repeat(row.astype(np.uint8), 4).tobytes().decode() for row in ids]
    requests = [Request(first + i, SAMPLING, text=text) for i, text in enumerate(texts)]
    prompts = Prompts(
        keys=[request.key for request in requests],
        ids=ids.reshape(-1),
        stops=np.arange(1, rows + 1) * tokens,
        max_tokens=[ANSWER] * rows,
        samplings=[SAMPLING],
        sampling_of=[0] * rows,
        wires=[],
        wire_fields=[],
    )
    return requests, prompts


def place(tokens: int) -> tuple[ModelShape, Gpu, Fit, Limits]:
    """What rows are planned for."""
    shape, gpu = shape_of(SHAPE), gpu_named("H200")
    assert shape is not None
    assert gpu is not None
    fitted = fit(shape, gpu, BUDGET, longest_tokens=tokens + ANSWER, cores=16)
    limits = Limits(
        shares_prefixes=True,
        kv_tokens=fitted.pool_tokens * fitted.replicas,
        seats=fitted.seats * fitted.replicas,
        replicas=fitted.replicas,
    )
    return shape, gpu, fitted, limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--tokens", type=int, default=500)
    arguments = parser.parse_args()
    rows, tokens = arguments.rows, arguments.tokens
    shape, gpu, fitted, limits = place(tokens)
    draw, config, gathered = np.random.default_rng(1), PlanConfig(), Gathered()
    planned_s = foretold_s = 0.0
    for first in range(0, rows, WINDOW):
        requests, prompts = window(draw, first, min(WINDOW, rows - first), tokens)
        began = time.thread_time()
        arranged = arrange(requests, config, limits)
        ordered = prompts.take(arranged.order) if arranged.order else prompts
        planned = plan(ordered, config, arranged)
        planned_s += time.thread_time() - began
        began = time.thread_time()
        gathered.add(planned.prompts)
        foretold_s += time.thread_time() - began
    began = time.thread_time()
    found = foretell(gathered, Setting(shape=shape, gpu=gpu, fit=fitted, budget=BUDGET))
    foretold_s += time.thread_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{rows:,} rows of {tokens} tokens: planned in {planned_s:.1f} s, GPU {found.seconds:.0f} s"
    )
    print(
        f"planning is {planned_s / found.seconds:.2%} of that; the forecast took {foretold_s:.1f} s"
    )
    print(f"peak {peak:,} MiB; hits {found.hit_rate:.1%} of {found.bounds.hit_rate:.1%}")


if __name__ == "__main__":
    main()
