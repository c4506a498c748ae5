"""A workload or a user's file, engines, lists of settings -> a table: what each setting does over the same rows.

Promises: every setting of every engine gets the same rows; a figure that cannot be known here is a dash, never a guess; the
knee is the first setting, in the order given, that does 95% of the best.
Knows nothing of: terminals, contenders.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rowmill import errors
from rowmill.bench.ours import engine_of
from rowmill.bench.records import Spec
from rowmill.bench.words import Words
from rowmill.bench.workloads import NUMBERED, SHAPES, write_workload
from rowmill.config import EngineConfig, Job
from rowmill.executors.opening import Opened
from rowmill.forecast.foretold import Foretold
from rowmill.forecast.gathered import Gathered
from rowmill.prospect import foretold_at, places_of, priced_at
from rowmill.size.gpus import kind_of
from rowmill.tune.moves import with_engine
from rowmill.tune.sample import Sample
from rowmill.tune.sweep import Point, points_of, sampled, sweep
from rowmill.tune.trial import Patience

KNEE_SHARE = 0.95
GIB, HOUR_S, MILLION = 1 << 30, 3600.0, 1e6
HEADS = (
    *("engine", "settings", "rows/s", "tokens/s, in + out", "+-", "cached", "GPU memory"),
    *("of the bound", "a million tokens", "start", ""),
)

Tell = Callable[[str], None]


class SweepAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A command line."""

    engines: tuple[str, ...] = ("vllm",)
    model: str = ""
    tokenizer: str = ""
    workload: str = "mixed"
    source: str = ""
    """A file of the user's, in place of a workload."""
    prompt: str = ""
    max_tokens: int | None = None
    sets: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    rows: int | None = None
    seconds: float = 60.0
    seed: int = 1
    gpu_hour: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table, as numbers."""

    engine: str
    point: Point
    bound_share: float = 0.0
    """Of the speed that no schedule can beat; 0: not known here."""
    million_tokens: float = 0.0
    """Cost; 0: no price is known."""
    is_knee: bool = False


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    title: str
    rows_in: int
    prompt_tokens: int
    rows: list[Row]


def swept(asked: SweepAsked, *, tell: Tell) -> list[Swept]:
    """A table for each workload.

    Raises:
        BadJob: with every mistake of the command line.
        ConfigError: a job or its input cannot be used.
    """
    ways = dict(_ways(asked.vary))
    settings = dict(_values(asked.sets, "--engine-set"))
    names = [asked.source] if asked.source else _workloads(asked.workload)
    with tempfile.TemporaryDirectory(prefix="rowmill-sweep-") as folder:
        return [_table(asked, name, ways, settings, Path(folder), tell) for name in names]


def _table(
    asked: SweepAsked,
    name: str,
    ways: dict[str, list[Any]],
    settings: dict[str, Any],
    folder: Path,
    tell: Tell,
) -> Swept:
    source = asked.source or _written(asked, name, settings, folder)
    rows: list[Row] = []
    rows_in = prompt_tokens = 0
    for engine in asked.engines:
        job = _job(asked, engine, source, settings)
        with tempfile.TemporaryDirectory(prefix="rowmill-sweep-") as spool:
            opened, sample, gathered = sampled(job, Path(spool))
            patience = Patience(most_s=asked.seconds)
            points = points_of(ways)
            found = []
            for point in sweep(opened.words.job, sample, points, patience, tell=tell):
                found.append(_row(engine, point, opened, sample, gathered))
                tell(f"  {', '.join(cells(found[-1]))}")
            rows += _with_knee(found)
            rows_in, prompt_tokens = sample.rows, sample.prompt_tokens
    about = Path(asked.model or asked.tokenizer or asked.engines[0]).name
    title = f"{Path(name).name}, {about}, {len(points_of(ways))} settings"
    return Swept(title=title, rows_in=rows_in, prompt_tokens=prompt_tokens, rows=rows)


def _written(asked: SweepAsked, name: str, settings: dict[str, Any], folder: Path) -> str:
    path = folder / f"{name}.jsonl"
    words = Words(asked.tokenizer or asked.model)
    number = asked.rows or SHAPES[name][1]
    context = int(settings.get("max_model_len") or 0)
    write_workload(name, path, words=words, seed=asked.seed, rows=number, context=context)
    return str(path)


def _job(asked: SweepAsked, engine: str, source: str, settings: dict[str, Any]) -> Job:
    spec = Spec(
        model=asked.model,
        tokenizer=asked.tokenizer or asked.model,
        engine=engine,
        settings=settings,
        folder="",
    )
    own = engine_of(spec).model_dump()
    if engine == "echo" and asked.source:
        own.pop("answer", None)
    sampling: dict[str, Any] = {"temperature": 0}
    if asked.max_tokens:
        sampling["max_tokens"] = asked.max_tokens
    tree: dict[str, Any] = {
        "source": source,
        "engine": EngineConfig.model_validate(own).model_dump(),
        "sampling": sampling,
        "plan": {"duplicates": "ask"},
        "run": {"gpu_hour_price": asked.gpu_hour},
    }
    if not asked.source:
        tree["raw"] = True
    if asked.prompt:
        tree["prompt"] = asked.prompt
    if asked.source and asked.rows:
        tree["run"]["limit"] = asked.rows
    return Job.model_validate(tree)


def _row(engine: str, point: Point, opened: Opened, sample: Sample, gathered: Gathered) -> Row:
    measured = point.measured
    if measured is None:
        return Row(engine=engine, point=point)
    job, limits = with_engine(opened.words.job, point.changes), opened.words.limits
    here = next((one for one in places_of(job) if one.is_here), None)
    share = 0.0
    price = job.run.gpu_hour_price or 0.0
    if here is not None:
        share = _bound_share(foretold_at(job, gathered, limits, here), sample, measured.rows_s)
        price = priced_at(job, kind_of(here.gpu.name, here.gpu.memory_bytes))
    cost = (
        price * point.gpus / HOUR_S / measured.tokens_s * MILLION if measured.tokens_s else 0.0
    )
    return Row(engine=engine, point=point, bound_share=share, million_tokens=cost)


def _bound_share(found: Foretold | None, sample: Sample, rows_s: float) -> float:
    """Of a steady state: the longest answer alone is no bound of that."""
    if found is None or not found.fit.parallel:
        return 0.0
    bounds = found.bounds
    ideal_s = max(bounds.compute_s, bounds.cache_read_s)
    return ideal_s / (sample.rows / rows_s) if rows_s else 0.0


def _with_knee(rows: list[Row]) -> list[Row]:
    rates = [row.point.measured.rate.mean if row.point.measured else 0.0 for row in rows]
    if not any(rates) or len(rows) < 2:
        return rows
    knee = next(i for i, rate in enumerate(rates) if rate >= KNEE_SHARE * max(rates))
    return [
        msgspec.structs.replace(row, is_knee=True) if i == knee else row
        for i, row in enumerate(rows)
    ]


def markdown(found: Swept, here: dict[str, str], command: str) -> str:
    """The table for people and for a page of results."""
    head = (
        f"### {found.title}\n\n{found.rows_in:,} rows, {found.prompt_tokens:,} prompt tokens; rates of the steady state.\n"
        f"`{command}`\n{here['hardware']}; {here['versions']}\n"
    )
    lines = [HEADS, tuple("---" for _ in HEADS), *map(cells, found.rows)]
    return head + "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(row: Row) -> tuple[str, ...]:
    """A line of the table, as text."""
    point, measured = row.point, row.point.measured
    told = ", ".join(f"{name}={value}" for name, value in point.changes.items()) or "as given"
    if measured is None:
        return (row.engine, told, *("-" for _ in range(8)), point.failed)
    return (
        row.engine,
        told,
        f"{measured.rows_s:,.1f}",
        f"{measured.tokens_s:,.0f}",
        f"{measured.rate.share:.1%}",
        f"{measured.hit_rate:.0%}",
        f"{point.gpu_bytes / GIB:,.1f} GiB" if point.gpu_bytes else "-",
        f"{row.bound_share:.0%}" if row.bound_share else "-",
        f"{row.million_tokens:.3g}" if row.million_tokens else "-",
        f"{point.start_s:.1f} s",
        "knee" if row.is_knee else "",
    )


def _workloads(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    found = [NUMBERED.get(name, name) for name in names]
    mistakes = [
        f"there is no workload `{name}`; known: {', '.join([*SHAPES, *NUMBERED])}"
        for name in found
        if name not in SHAPES
    ]
    if mistakes:
        raise errors.BadJob(where="bench", mistakes=mistakes)
    return found


def _ways(texts: Sequence[str]) -> Iterable[tuple[str, list[Any]]]:
    for name, text in _pairs(texts, "--vary"):
        yield name, [_value(one.strip()) for one in text.split(",") if one.strip()]


def _values(texts: Sequence[str], option: str) -> Iterable[tuple[str, Any]]:
    for name, text in _pairs(texts, option):
        yield name, _value(text)


def _pairs(texts: Sequence[str], option: str) -> Iterable[tuple[str, str]]:
    wrong = [f"`{option} {text}` is no KEY=VALUE" for text in texts if "=" not in text]
    if wrong:
        raise errors.BadJob(where="bench", mistakes=wrong)
    for text in texts:
        name, _, value = text.partition("=")
        name = name.strip().removeprefix("engine.")
        yield "seats" if name == "max_num_seqs" else name, value.strip()


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
