"""`bench`: a workload and contenders -> a table, and all numbers as JSON."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from rowmill import __version__
from rowmill.cli.front import debug_option, json_option, wants_json
from rowmill.cli.voice import out, out_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rowmill.bench.records import Measured

UNMEASURED = 4
"""Exit code where a table holds no complete run."""


SOME = click.IntRange(min=1)
_WHAT = (
    click.option(
        "--workload",
        metavar="NAME[:ROWS[:ROUNDS]],...",
        default="mixed",
        show_default=True,
        help="Shape of prompts and answers: `prefixes`, `short`, `mixed`, `system`, or `w0` to `w9` and `w2b`:"
        " `control`, `one_prompt`, `tail`, `documents`, `few_shot`, `relational`, `blend`, `retrieved`, `samples`,"
        " `tenants`, `long_tailed`. Engines stay open over several.",
    ),
    click.option("--model", default="", metavar="DIR", help="Folder of the model."),
    click.option(
        "--tokenizer",
        default="",
        metavar="DIR",
        help="Folder with tokenizer.json, where the model has none.",
    ),
    click.option(
        "--engine",
        default="vllm",
        show_default=True,
        help="Engine of rowmill: `vllm`, `echo`; with `--vary` any, and several by commas.",
    ),
    click.option(
        "--contender",
        "contenders",
        multiple=True,
        metavar="NAME",
        help="`generate`, `sorted`, `five_line`, `run_batch`, `rowmill`. Repeatable; all.",
    ),
    click.option(
        "--engine-set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Engine argument of every contender, by vLLM's name. Repeatable.",
    ),
    click.option(
        "--defaults",
        is_flag=False,
        flag_value="also",
        type=click.Choice(("also", "only")),
        metavar="[only]",
        help="A second table with everybody's own defaults; `only`: in place of the first.",
    ),
)
_SWEEP = (
    click.option(
        "--vary",
        multiple=True,
        metavar="KEY=A,B,...",
        help="In place of contenders, a table of rowmill's engine at each of these settings. Repeatable: all combinations.",
    ),
    click.option("--source", default="", metavar="FILE", help="With `--vary`: rows of yours."),
    click.option(
        "--prompt", default="", metavar="TEXT", help="Prompt with `{column}` for these."
    ),
    click.option("--max-tokens", type=SOME, metavar="N", help="Longest answer of these."),
    click.option(
        "--seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="S",
        help="With `--vary`: run a setting so long at most; less where its rate is known to 5 %.",
    ),
    click.option(
        "--gpu-hour",
        type=click.FloatRange(min=0),
        metavar="PRICE",
        help="With `--vary`: price of one GPU for an hour, or of the machine.",
    ),
    click.option(
        "--into", metavar="FILE", help="Append the tables to a page, as benchmarks/RESULTS.md."
    ),
)
_HOW_LONG = (
    click.option(
        "--rows", type=SOME, metavar="N", help="Rows a round.  [default: by workload]"
    ),
    click.option("--rounds", type=SOME, default=3, show_default=True, help="Rounds."),
    click.option(
        "--slow",
        multiple=True,
        metavar="NAME",
        help="Contender that runs in the first rounds alone. Repeatable.",
    ),
    click.option(
        "--slow-rounds", type=SOME, default=1, show_default=True, help="Rounds of those."
    ),
    click.option("--seed", type=int, default=1, show_default=True, help="Of round 1."),
    click.option(
        "--max-seconds",
        type=click.FloatRange(min=0, min_open=True),
        metavar="S",
        help="End after so long, with what there is.",
    ),
)
_WHERE = (
    click.option(
        "--memory-share",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="SHARE",
        help="Of the GPU's memory, for each engine.  [default: 0.9 / engines]",
    ),
    click.option("--gpu", metavar="INDEX", help="GPU to use, as `0`.  [default: all]"),
    click.option(
        "--folder",
        metavar="DIR",
        help="Keep files and logs there.  [default: a temporary one]",
    ),
    click.option("--profile", is_flag=True, help="Tell where rowmill's time went."),
    click.option("--out", "target", metavar="FILE", help="All numbers, as JSON."),
    json_option,
    debug_option,
)


def bench_options(command: Any) -> Any:
    """What `bench` takes."""
    for part in reversed((*_WHAT, *_SWEEP, *_HOW_LONG, *_WHERE)):
        command = part(command)
    return command


@click.command()
@bench_options
def bench(
    target: str | None,
    folder: str | None,
    gpu: str | None,
    max_seconds: float | None,
    into: str | None,
    vary: tuple[str, ...],
    **flags: Any,
) -> int:
    """Compare rowmill with other ways to run a model over a file, on this machine; or engine settings with each other.

    Every contender answers the same generated files, in interleaved rounds, with its engine open before. Ratios are
    medians of pairs within rounds; above 1 is faster.
    """
    import os

    from rowmill.bench.asked import Asked, plans_of
    from rowmill.bench.machine import machine
    from rowmill.bench.rounds import measure_all
    from rowmill.bench.table import markdown

    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    here = machine(__version__)
    if vary or flags["source"]:
        return _sweep(target, into, here, vary, flags)
    for name in SWEEP_ONLY:
        flags.pop(name)
    with _place(folder) as place:
        plans = plans_of(Asked(**{**flags, "defaults": flags["defaults"] or ""}), place)
        done = measure_all(
            plans,
            place,
            tell=say,
            max_seconds=max_seconds,
            keep=lambda some: _keep(target, here, some),
        )
    tables = [markdown(found, here) for found in done]
    _append(into, tables)
    for table in tables:
        if not wants_json():
            out(f"{table}\n")
    if wants_json():
        out_json(_record(here, done))
    return 0 if all(any(not run.invalid for run in one.runs) for one in done) else UNMEASURED


SWEEP_ONLY = ("source", "prompt", "max_tokens", "seconds", "gpu_hour")


def _sweep(
    target: str | None,
    into: str | None,
    here: dict[str, str],
    vary: tuple[str, ...],
    flags: dict[str, Any],
) -> int:
    """A table of settings."""
    from rowmill.bench.sweeps import SweepAsked, markdown, swept
    from rowmill.cli.shown import plain

    names = (*SWEEP_ONLY, "model", "tokenizer", "workload", "sets", "rows", "seed")
    engines = tuple(one.strip() for one in flags["engine"].split(",") if one.strip())
    asked = SweepAsked(engines=engines, vary=vary, **{name: flags[name] for name in names})
    found = swept(asked, tell=say)
    command = shlex.join(["rowmill", *sys.argv[1:]])
    tables = [markdown(one, here, command) for one in found]
    _append(into, tables)
    record = {"command": command, **here, "tables": [plain(one) for one in found]}
    _write(target, record)
    if wants_json():
        out_json(record)
    else:
        for table in tables:
            out(f"{table}\n")
    return (
        0 if all(any(row.point.measured for row in one.rows) for one in found) else UNMEASURED
    )


def _append(into: str | None, tables: list[str]) -> None:
    """Put tables behind what a page says already."""
    from pathlib import Path

    if into is not None:
        with Path(into).open("a", encoding="utf-8") as file:
            file.writelines(f"\n{table}\n" for table in tables)


@contextlib.contextmanager
def _place(folder: str | None) -> Iterator[Path]:
    """Where files, logs and outputs go: a folder that is named stays."""
    import tempfile
    from pathlib import Path

    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="rowmill-bench-") as name:
        yield Path(name)


def _keep(target: str | None, here: dict[str, str], done: list[Measured]) -> None:
    """Write all numbers, so that one who is killed after this loses nothing."""
    _write(target, _record(here, done))


def _write(target: str | None, record: dict[str, Any]) -> None:
    import json
    from pathlib import Path

    if target is None:
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(json.dumps(record, indent=1), "utf-8")
    draft.replace(path)


def _record(here: dict[str, str], done: list[Measured]) -> dict[str, Any]:
    from rowmill.bench.rounds import described
    from rowmill.bench.table import lines_of, markdown
    from rowmill.cli.shown import plain

    tables = [
        {**described(one), "table": plain(lines_of(one)), "markdown": markdown(one, here)}
        for one in done
    ]
    return {"command": shlex.join(["rowmill", *sys.argv[1:]]), **here, "tables": tables}
