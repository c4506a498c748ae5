"""What is asked for on a command line -> plans that can be measured, or mistakes in words.

Promises: all contenders get the same engine settings; with everybody's defaults, the same pool and the same weights still.
Knows nothing of: processes, tables.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rowmill import errors
from rowmill.bench.contenders import CONTENDERS, grouped, resident_of
from rowmill.bench.records import Spec
from rowmill.bench.rounds import Plan
from rowmill.bench.workloads import NUMBERED, SHAPES

MEMORY = "gpu_memory_utilization"
ALL_SHARES = 0.9
EQUAL, OWN = "equal settings", "everybody's own defaults"
TUNING = frozenset(
    """
    async_scheduling attention_backend block_size compilation_config cudagraph_capture_sizes
    disable_cascade_attn enable_chunked_prefill long_prefill_token_threshold
    max_cudagraph_capture_size max_num_batched_tokens max_num_seqs optimization_level
    performance_mode stream_interval
    """.split()  # noqa: SIM905 - a list of names is read as text
)
"""Engine arguments that are left out where everybody has their own defaults. Others say what is run: the weights, the
pool, the length of the context."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A command line."""

    workload: str = "mixed"
    model: str = ""
    tokenizer: str = ""
    engine: str = "vllm"
    contenders: tuple[str, ...] = ()
    """Empty: all that the engine has."""
    sets: tuple[str, ...] = ()
    defaults: str = ""
    """`also`, `only`, or empty."""
    rows: int | None = None
    rounds: int = 3
    slow: tuple[str, ...] = ()
    slow_rounds: int = 1
    seed: int = 1
    memory_share: float | None = None
    profile: bool = False


class Workload(NamedTuple):
    """A workload of a command line; 0: as for all."""

    name: str
    rows: int = 0
    rounds: int = 0


def plans_of(asked: Asked, folder: Path) -> list[Plan]:
    """One plan a table.

    Args:
        folder: for logs and files.

    Raises:
        BadJob: with every mistake.
        ConfigError: rowmill's engine does not take the settings.
    """
    settings = dict(_settings(asked.sets))
    names = asked.contenders or _all_of(asked.engine)
    mistakes = [*_name_mistakes(asked, names), *_folder_mistakes(asked)]
    mistakes += [
        f"`--engine-set {text}` is no KEY=VALUE" for text in asked.sets if "=" not in text
    ]
    if mistakes:
        raise errors.BadJob(where="bench", mistakes=mistakes)
    if asked.engine == "vllm":
        share = asked.memory_share or round(ALL_SHARES / len(grouped(names)), 3)
        settings.setdefault(MEMORY, share)
    each = [
        msgspec.structs.replace(
            asked,
            workload=one.name,
            rows=one.rows or asked.rows,
            rounds=one.rounds or asked.rounds,
        )
        for one in _workloads(asked)
    ]
    plans = []
    if asked.defaults != "only":
        plans += [_plan(one, names, settings, folder, EQUAL) for one in each]
    if asked.defaults:
        own = {name: value for name, value in settings.items() if name not in TUNING}
        plans += [_plan(one, names, own, folder, OWN) for one in each]
    if "rowmill" in names:
        _check_ours(plans)
    return plans


def _plan(
    asked: Asked, names: Sequence[str], settings: dict[str, Any], folder: Path, which: str
) -> Plan:
    tokenizer = asked.tokenizer or asked.model
    spec = Spec(
        model=asked.model,
        tokenizer=tokenizer,
        engine=asked.engine,
        settings=settings,
        folder=str(folder),
        is_profiled=asked.profile,
    )
    about = Path(asked.model or tokenizer).name
    return Plan(
        title=f"{asked.workload}, {about}, {which}",
        workload=asked.workload,
        rows=asked.rows or SHAPES[asked.workload][1],
        contenders=tuple(name for name in CONTENDERS if name in names),
        spec=spec,
        rounds=asked.rounds,
        seed=asked.seed,
        slow=asked.slow,
        slow_rounds=asked.slow_rounds,
        is_equal=which == EQUAL,
        context=int(settings.get("max_model_len") or _context(Path(asked.model))),
    )


def _workloads(asked: Asked) -> list[Workload]:
    """Several by commas: the engines stay open from one to the next."""
    return [_workload(text.strip()) for text in asked.workload.split(",") if text.strip()]


def _workload(text: str) -> Workload:
    """NAME[:ROWS[:ROUNDS]]; what is no number that can be is left in the name, which then is unknown."""
    name, *numbers = text.split(":")
    name = NUMBERED.get(name.lower(), name)
    if len(numbers) > 2 or not all(part.isascii() and part.isdigit() for part in numbers):
        return Workload(text)
    counts = [int(part) for part in numbers]
    return Workload(name, *counts) if all(counts) else Workload(text)


def _all_of(engine: str) -> tuple[str, ...]:
    return tuple(CONTENDERS) if engine == "vllm" else ("rowmill",)


def _name_mistakes(asked: Asked, names: Iterable[str]) -> Iterator[str]:
    known = ", ".join(f"`{name}`" for name in CONTENDERS)
    for one in _workloads(asked):
        if one.name not in SHAPES:
            yield f"there is no workload `{one.name}`; known, as NAME[:ROWS[:ROUNDS]]: {', '.join(SHAPES)}"
    for name in (*names, *asked.slow):
        if name not in CONTENDERS:
            yield f"there is no contender `{name}`; known: {known}"
        elif asked.engine != "vllm" and resident_of(name) != "rowmill":
            yield f"contender `{name}` is vLLM's; with `--engine {asked.engine}` there is `rowmill` alone"


def _folder_mistakes(asked: Asked) -> Iterator[str]:
    if not (asked.model or asked.tokenizer):
        yield "no model is named; give `--model DIR`"
    if (
        asked.model
        and asked.engine == "vllm"
        and not (Path(asked.model) / "config.json").is_file()
    ):
        yield f"`{asked.model}` holds no config.json; give the folder of a model"


def _settings(sets: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """KEY=VALUE; a value is TOML, else text."""
    for text in sets:
        name, _, value = text.partition("=")
        try:
            yield name.strip(), tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            yield name.strip(), value.strip()


def _check_ours(plans: Iterable[Plan]) -> None:
    from rowmill.bench.ours import engine_of
    from rowmill.engines import check_options

    for plan in plans:
        mistakes = check_options(engine_of(plan.spec))
        if mistakes:
            raise errors.BadJob(where="bench, contender `rowmill`", mistakes=mistakes)


def _context(model: Path) -> int:
    """Tokens that the model was made for; 0 where nothing tells."""
    try:
        config = json.loads((model / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return 0
    return int(config.get("max_position_embeddings") or 0) if isinstance(config, dict) else 0
