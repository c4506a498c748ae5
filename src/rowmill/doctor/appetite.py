"""How fast this machine tokenises -> whether its GPUs would wait for it.

Promises: about a second of work, on made-up text.
Knows nothing of: rows.
Source: a token of a prompt costs two operations a parameter that it passes.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

from rowmill.config import EngineConfig
from rowmill.doctor.finding import Finding, ok, slow
from rowmill.engines import resolve
from rowmill.errors import ConfigError, MissingExtra
from rowmill.size import find_gpus, read_shape
from rowmill.telemetry import cores
from rowmill.tokens import Tokenizer, open_tokenizer

TYPICAL_PARAMS = 7e9
ROOM = 1.5
"""Tokenising shares the processors with all else: it should be so much faster than what it feeds."""
TEXTS, WORDS, ENOUGH_S = 512, 400, 0.7
SWITCHES = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "RAYON_RS_NUM_CPUS")


def look_at_tokenising(engine: EngineConfig | None) -> Iterator[Finding]:
    """Tokens a second, beside what the GPUs could take."""
    tokenizer = _tokenizer(engine)
    if tokenizer is None:
        yield ok(
            "tokenising",
            "not measured: no tokenizer here (name a model, or install the demo one)",
        )
        return
    rate = _rate(tokenizer)
    told = f"{rate / 1e3:,.0f} thousand tokens/s on {cores():g} cores"
    held = [f"`{name}={os.environ[name]}`" for name in SWITCHES if name in os.environ]
    held = [one for one in held if one.split("=")[1] not in ("true`", "1`") or "RAYON" in one]
    wanted, what = _appetite(engine)
    if wanted and rate < ROOM * wanted:
        yield slow(
            "tokenising",
            f"{told}, and {what} take {wanted / 1e3:,.0f} thousand tokens/s of prompts",
            f"unset {' and '.join(held)}"
            if held
            else "give it more cores, or have rows tokenised on other nodes (`ray.prepare`)",
        )
    elif held:
        yield slow("tokenising", f"{told}, held down by {' and '.join(held)}", "unset it")
    else:
        yield ok(
            "tokenising", f"{told}" + (f"; {what} take {wanted / 1e3:,.0f}" if wanted else "")
        )


def _tokenizer(engine: EngineConfig | None) -> Tokenizer | None:
    try:
        return open_tokenizer(resolve(engine or EngineConfig(name="llamacpp")))
    except (ConfigError, MissingExtra):
        return None


def _rate(tokenizer: Tokenizer) -> float:
    """Tokens a second over all cores, as rows are tokenised."""
    draw = random.Random(3)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 8))) for _ in range(2000)]
    texts = [" ".join(draw.choices(words, k=WORDS)) for _ in range(TEXTS)]
    tokenizer.encode_batch(texts[:8], add_special=False)
    began, tokens = time.perf_counter(), 0
    while time.perf_counter() - began < ENOUGH_S:
        ids, _ = tokenizer.encode_batch(texts, add_special=False)
        tokens += len(ids)
    return tokens / (time.perf_counter() - began)


def _appetite(engine: EngineConfig | None) -> tuple[float, str]:
    """Prompt tokens a second that the GPUs here compute at most, and of what model."""
    gpus = [gpu for gpu in find_gpus() if gpu.flops]
    if not gpus:
        return 0.0, ""
    shape = read_shape(engine.model) if engine is not None and engine.model else None
    params = float(shape.active_params) if shape is not None else TYPICAL_PARAMS
    number = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
    what = f"{number} with {'this model' if shape else 'a model of 7 billion parameters'}"
    return sum(gpu.flops for gpu in gpus) / (2 * params), what
