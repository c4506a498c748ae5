"""Ray Data LLM and rowmill on Ray: the same rows, the same vLLM with the same settings; rows that fail, a node that dies.

    PYTHON benchmarks/ray_data_llm.py --model FOLDER [--rows 6000] [--rounds 1] [--kill] [--only NAME ...] [--folder FOLDER]

PYTHON has Ray with its data part, a vLLM that it can drive (also one for CPUs) and rowmill. The model is a folder in
Hugging Face's layout. What is measured: a JSON Lines file to result files, as a child process, engine start and all.
Every 50th row is longer than the context: what becomes of those rows, and of the others, is told beside. Contenders:

- `ray_data`: Ray Data LLM with `should_continue_on_error`; it gets the prompt as text, its own tokenizing left to vLLM;
- `ray_data_strict`: the same without that;
- `rowmill`: `--executor ray`.

`steady` is counted inside vLLM, the same for all: a plugin writes a line for each request that its core takes and for
each that it ends, so that rows a second are those from the first row taken to the last one ended, and rows that were
asked twice are seen. Without `--kill` each contender has a Ray of its own and one worker. With it there are two nodes on
this machine with a worker each, and the one that is not the head is killed (SIGKILL to all of it) once both engines
have ended a twentieth of the rows each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.executors.ray.nodes import Node, cluster, descendants, environment

CONTEXT, SEATS, MAX_TOKENS, LONG_EVERY = 512, 32, 16, 50
LIMIT_S = 900.0
NODE_CPUS, WORKER_CPUS = 3, 2
BLOCKS = 48
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
COUNTING = """
import os, time

def install():
    from vllm.v1.engine.core import EngineCore
    if hasattr(EngineCore, "counted"):
        return
    EngineCore.counted = None
    add, step, queued = EngineCore.add_request, EngineCore.step, EngineCore.step_with_batch_queue

    def note(core, word, what):
        if core.counted is None:
            core.counted = open(f"{os.environ['COUNTED']}/{os.getpid()}", "a", buffering=1)
        core.counted.write(f"{word} {time.monotonic()} {what}\\n")

    def add_request(core, request, *rest):
        note(core, "taken", hash(tuple(request.prompt_token_ids)))
        return add(core, request, *rest)

    def counting(step):
        def stepped(core):
            found = step(core)
            for outputs in (found[0] or {}).values():
                for output in outputs.outputs:
                    if output.finish_reason is not None:
                        note(core, "ended", 0)
            return found
        return stepped

    EngineCore.add_request = add_request
    EngineCore.step, EngineCore.step_with_batch_queue = counting(step), counting(queued)
"""
RAY_DATA = """
import sys
import ray, ray.data
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

source, out, model, context, seats, max_tokens, address, workers, cpus, blocks, goes_on = sys.argv[1:12]
local = dict(include_dashboard=False, num_cpus=3) if address == "local" else {}
ray.init(address=address, log_to_driver=False, **local)
config = vLLMEngineProcessorConfig(
    model_source=model,
    engine_kwargs=dict(
        enforce_eager=True, dtype="bfloat16", max_model_len=int(context), max_num_seqs=int(seats)
    ),
    batch_size=64,
    concurrency=(int(workers), int(workers)),
    placement_group_config={"bundles": [{"CPU": float(cpus)}]},
    chat_template_stage=False,
    tokenize_stage=False,
    detokenize_stage=False,
    log_engine_metrics=False,
    should_continue_on_error=goes_on == "goes on",
)
sampling = dict(temperature=0, max_tokens=int(max_tokens), ignore_eos=True)
answered = build_processor(
    config, preprocess=lambda row: {**row, "sampling_params": sampling}
)
rows = ray.data.read_json(source, lines=True, override_num_blocks=int(blocks))
answered(rows).write_json(out)
"""


def make_rows(path: Path, num_rows: int) -> None:
    with path.open("w", encoding="ascii") as file:
        for i in range(num_rows):
            words = CONTEXT if i % LONG_EVERY == LONG_EVERY - 1 else 1
            row = {"id": i, "prompt": f"Row {i} of many: " + "say something short. " * words}
            file.write(json.dumps(row) + "\n")


@dataclass(frozen=True)
class Work:
    """What a contender is given."""

    source: Path
    out: Path
    model: str
    address: str
    workers: int


def ray_data(work: Work, goes_on: str = "goes on") -> list[str]:
    cpus = WORKER_CPUS if work.workers > 1 else 1
    settings = [CONTEXT, SEATS, MAX_TOKENS, work.address, work.workers, cpus, BLOCKS, goes_on]
    words = [work.source, work.out, work.model, *settings]
    return [sys.executable, "-c", RAY_DATA, *map(str, words)]


def ray_data_strict(work: Work) -> list[str]:
    return ray_data(work, "ends")


def rowmill(work: Work) -> list[str]:
    sets = {
        "engine.dtype": "bfloat16",
        "engine.enforce_eager": "true",
        "engine.cpu_kv_gib": 1,
        "engine.max_model_len": CONTEXT,
        "engine.seats": SEATS,
        "sampling.temperature": 0,
        "sampling.max_tokens": MAX_TOKENS,
        "sampling.ignore_eos": "true",
        "ray.workers": work.workers,
        "ray.cpus": WORKER_CPUS if work.workers > 1 else 1,
        "raw": "true",
    }
    flags = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    if work.address != "local":
        flags += ["--address", work.address]
    command = [sys.executable, "-m", "rowmill", "run", str(work.source), "-o", str(work.out)]
    return [
        *command,
        *("--engine", "vllm", "--model", work.model, "--executor", "ray"),
        *flags,
    ]


CONTENDERS = (ray_data, ray_data_strict, rowmill)


@dataclass
class Counted:
    """What the cores of all engines wrote."""

    taken: list[tuple[float, str]] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def words(self) -> str:
        if not self.ended:
            return "no row ended in an engine"
        seconds = max(self.ended) - min(at for at, _ in self.taken)
        twice = len(self.taken) - len({what for _, what in self.taken})
        return (
            f"steady {len(self.ended) / seconds:.0f} rows/s ({len(self.ended)} ended in {seconds:.1f} s),"
            f" {len(self.taken)} taken, {twice} of them again"
        )


def counted(folder: Path, pids: set[int] | None = None) -> Counted:
    found = Counted()
    for file in folder.iterdir():
        if pids is not None and int(file.name) not in pids:
            continue
        for line in file.read_text().splitlines():
            with contextlib.suppress(ValueError):  # the last line of one that was killed
                word, at, what = line.split()
                if word == "taken":
                    found.taken.append((float(at), what))
                else:
                    found.ended.append(float(at))
    return found


def fates(folder: Path, error: str, text: str) -> str:
    """What became of the rows, in words."""
    files = sorted(folder.rglob("*.json*")) if folder.exists() else []
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    failed = sum(bool(row.get(error)) for row in rows)
    answered = sum(bool(row.get(text)) for row in rows)
    ids = {row["id"] for row in rows if row.get("id") is not None}
    return f"{len(rows)} rows with {len(ids)} ids: {answered} answered, {failed} with an error"


@contextlib.contextmanager
def counting(folder: Path) -> Iterator[None]:
    """Have each vLLM that is started from here count."""
    plugin = folder / "plugin"
    about = plugin / "counting-1.dist-info"
    about.mkdir(parents=True)
    (plugin / "counting.py").write_text(COUNTING)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ncounting = counting:install\n"
    )
    os.environ.update({**ENVIRONMENT, "PYTHONPATH": str(plugin)})
    yield


def await_kill(process: subprocess.Popen[bytes], node: Node, folder: Path, rows: int) -> str:
    """Kill the node once its engine and the other one have ended so many rows each. Returns: what was seen."""
    while process.poll() is None:
        here = len(counted(folder, set(descendants(node.process.pid))).ended)
        elsewhere = len(counted(folder).ended) - here
        if here >= rows and elsewhere >= rows:
            node.kill()
            return (
                f"a node was killed when {here} rows had ended there and {elsewhere} elsewhere"
            )
        time.sleep(0.2)
    return "it ended before its node could be killed"


def one(name: str, work: Work, folder: Path, kill_at: int) -> None:
    """Run a contender and tell what became of it."""
    (folder / "counted").mkdir(parents=True)
    os.environ["COUNTED"] = str(folder / "counted")
    contender = next(c for c in CONTENDERS if c.__name__ == name)
    with contextlib.ExitStack() as stack:
        node = None
        variables = dict(os.environ)
        if kill_at:
            made = stack.enter_context(cluster(NODE_CPUS))
            node = made.add(cpus=NODE_CPUS)
            work = Work(work.source, work.out, work.model, made.address, 2)
            variables = environment(made.folder)
        log = stack.enter_context((folder / "words").open("wb"))
        began = time.monotonic()
        process = subprocess.Popen(
            contender(work), stdout=log, stderr=subprocess.STDOUT, env=variables
        )
        seen = await_kill(process, node, folder / "counted", kill_at) if node else ""
        killed = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(1.0, LIMIT_S - (killed - began)))
        how = f"exit {process.poll()}" if process.poll() is not None else "not done in time"
        process.kill()
        process.wait()
        now = time.monotonic()
    tell(name, work, folder, f"{now - began:6.1f} s, {how}")
    if seen:
        print(f"    {seen}, and it went on for {now - killed:.1f} s", flush=True)


def tell(name: str, work: Work, folder: Path, how: str) -> None:
    """What became of a contender's rows, in words."""
    columns, where = ("__inference_error__", "generated_text"), work.out
    if name == "rowmill":
        columns, where = ("rowmill_error", "rowmill_text"), work.out / "results"
    print(f"{name:<15} {how}, load {os.getloadavg()[0]:.1f}: {fates(where, *columns)}")
    print(f"    {counted(folder / 'counted').words()}")
    told = (folder / "words").read_text(errors="replace").splitlines()
    print(*(f"    {line}" for line in told if line.startswith("done: ")), sep="\n", flush=True)
    if not fates(where, *columns).startswith(
        f"{len(work.source.read_bytes().splitlines())} rows"
    ):
        print(*told[-25:], sep="\n", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    names = [contender.__name__ for contender in CONTENDERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name, counting(Path(name)):
        folder = Path(name)
        source = folder / "rows.jsonl"
        make_rows(source, asked.rows)
        for round_ in range(asked.rounds):
            for contender in asked.only[:: 1 if round_ % 2 == 0 else -1]:
                mine = folder / f"{contender}{round_}"
                work = Work(source, mine / "out", asked.model, "local", 1)
                one(contender, work, mine, asked.rows // 20 if asked.kill else 0)


if __name__ == "__main__":
    main()
