"""Jobs with one wrong setting each, and one that is well set: what is planted against what the verdict says.

    python benchmarks/planted.py                            # echo and http: no engine of some GB
    python benchmarks/planted.py --engine vllm              # on a CPU, one engine after the other
    python benchmarks/planted.py --engine vllm --together   # on a GPU: all engines start at once, runs take turns

Planted are: 8 seats; 512 tokens a step; one thread of the tokenizer; a slow disk (`--disk-bytes-s`: a library between
this program and libc's `write`, made with `cc`); an endpoint that takes `--service-s` a request; and nothing. Models are a
shape with random weights (`--shape`) and a tokenizer made here, so nothing is downloaded. Each job works for `--seconds`.
The exit code is the number of jobs whose verdict was another one than what was planted.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
SHAPES = {  # hidden, inner, layers, heads, KV heads
    "tiny": (128, 256, 2, 2, 1),
    "135m": (576, 1536, 30, 9, 3),
    "1.5b": (1536, 8960, 28, 12, 2),
    "7b": (3584, 18944, 28, 28, 4),
}
SLOW_STEPS = 3000
"""Of the slow tokenizer: some 20 ms a row of 200 words, on one thread."""
TOGETHER = {"kv_cache_memory_bytes": 8_000_000_000, "gpu_memory_utilization": 0.1}
"""Of engines that start at the same time: what each finds free says nothing."""
WELL = ("GPU compute", "GPU bandwidth", "CPU compute", "engine CPU", "engine", "rowmill")
"""What may be said of a job in which nothing is wrong: something is always the slowest."""
SLOW_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static void rest(int fd, ssize_t bytes) {
  const char *folder = getenv("SLOW_FOLDER"), *rate = getenv("SLOW_BYTES_S");
  char link[64], path[4096];
  if (!folder || !rate || bytes <= 0) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return;
  path[n] = 0;
  if (strncmp(path, folder, strlen(folder))) return;
  double seconds = bytes / atof(rate);
  struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
  pthread_mutex_lock(&one);
  nanosleep(&t, 0);
  pthread_mutex_unlock(&one);
}
ssize_t write(int fd, const void *from, size_t n) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  ssize_t done = real(fd, from, n);
  rest(fd, done);
  return done;
}
"""


class Case(NamedTuple):
    """One job."""

    planted: str
    """The station that the verdict has to name; empty for a job that is well set."""
    words: int
    """Of a prompt."""
    max_tokens: int = 32
    engine: Mapping[str, Any] = MappingProxyType({})
    environment: Mapping[str, str] = MappingProxyType({})
    shape: str = "135m"
    """Of the model, where `--shape` names none: on a CPU a small one, so that what is planted is the slowest."""
    slow_words: bool = False
    """Whether the model's tokenizer goes over each text many times before it cuts it: slower than any engine."""

    def model(self, shape: str | None) -> str:
        """Its folder's name."""
        return (shape or self.shape) + ("-slow" if self.slow_words else "")


def cases(options: argparse.Namespace) -> dict[str, Case]:
    """Those of the engine that is asked for."""
    one_thread = {"RAYON_NUM_THREADS": "1"}
    slow = {"SLOW_BYTES_S": str(options.disk_bytes_s)}
    if options.engine == "echo":
        return {
            "tokeniser": Case("tokenising", 600, max_tokens=4, environment=one_thread),
            "disk": Case("writing", 20, environment=slow),
            "endpoint": Case("endpoint", 20, engine={"name": "http", "seats": 64}),
            "well": Case("", 20, engine={"delay_s": 0.05, "seats": 64}),
        }
    return {
        "seats": Case("seats", 30, max_tokens=64, engine={"seats": 8}, shape="tiny"),
        "budget": Case(
            "token budget", 400, max_tokens=2, engine={"max_num_batched_tokens": 512}
        ),
        "tokeniser": Case(
            "tokenising",
            200,
            max_tokens=1,
            environment=one_thread,
            shape="tiny",
            slow_words=True,
        ),
        "disk": Case("writing", 30, max_tokens=8, environment=slow, shape="tiny"),
        "endpoint": Case("endpoint", 20, engine={"name": "http", "seats": 64}),
        "well": Case("", 60, max_tokens=64, shape="tiny"),
    }


# -- material ---------------------------------------------------------------------------


def vocabulary(number: int = 4000) -> list[str]:
    """Words that can be spoken, the same each time."""
    draw = random.Random(5)
    parts = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "ai", "ou")]
    return sorted({"".join(draw.choices(parts, k=draw.randint(1, 3))) for _ in range(number)})


def make_tokenizer(into: Path, *, slow: bool) -> int:
    """A byte-level BPE of those words. Returns: its tokens."""
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = vocabulary()
    made.train_from_iterator([" ".join(words), "".join(f" {word}" for word in words)], trainer)
    if slow:
        # Such chains are in real files; this one changes no text.
        each = normalizers.Replace(Regex("[A-Z]+(?=[0-9])"), "")
        made.normalizer = normalizers.Sequence([each] * SLOW_STEPS)
    into.mkdir(parents=True, exist_ok=True)
    made.save(str(into / "tokenizer.json"))
    (into / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
            }
        )
    )
    return int(made.get_vocab_size())


def make_model(into: Path, shape: str, *, slow_words: bool) -> None:
    """A folder with a shape and a tokenizer, without weights."""
    tokens = make_tokenizer(into, slow=slow_words)
    hidden, inner, layers, heads, kv_heads = SHAPES[shape]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": -(-tokens // 64) * 64,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (into / "config.json").write_text(json.dumps(config))


def rows_of(case: Case, most: int) -> int:
    """So many that none of the jobs comes to its end, and no file takes long to make."""
    return min(most, 4_000_000 // case.words)


def make_rows(path: Path, case: Case, rows: int) -> None:
    """Prompts; the same seed gives the same file."""
    draw = random.Random(11)
    words = vocabulary()
    with path.open("w", encoding="utf-8") as lines:
        for number in range(rows):
            own = " ".join(draw.choices(words, k=case.words))
            lines.write(json.dumps({"prompt": f"{number} {own}"}) + "\n")


def make_slow_disk(into: Path) -> Path | None:
    """The library, compiled; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, made = into / "slow_disk.c", into / "slow_disk.so"
    source.write_text(SLOW_DISK)
    command = [compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(made), "-ldl"]
    subprocess.run(command, check=True)
    return made


# -- one job, in a process of its own ------------------------------------------------------


def job_of(name: str, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """The job file as a tree."""
    folder = Path(options.folder)
    model = str(folder / case.model(options.shape))
    if case.engine.get("name") == "http":
        engine: dict[str, Any] = {"url": options.url, "model": "tiny", **case.engine}
    elif options.engine == "echo":
        engine = {"name": "echo", "tokenizer": model, "answer": "numbers", **case.engine}
    else:
        engine = {"name": "vllm", "model": model, "load_format": "dummy", "replicas": 1}
        engine |= {"max_model_len": 2048, **case.engine}
        engine |= TOGETHER if options.together else {}
        engine |= dict(json.loads(options.set))
    return {
        "source": str(folder / f"{name}.jsonl"),
        "output": str(folder / f"{name}.out"),
        "kind": "generate",
        "prompt": "{prompt}",
        "raw": True,
        "engine": engine,
        "sampling": {"temperature": 0, "max_tokens": case.max_tokens, "ignore_eos": True},
        "validate": {"first_rows": 64},
        "plan": {"window_rows": 1024},
        "run": {"max_hours": options.seconds / 3600, "drain_s": 1.0, "checkpoint_s": 2.0},
    }


def work(name: str, options: argparse.Namespace) -> None:
    """Inside that process: open the engine, wait for the turn, run, tell."""
    from rowmill.config import Job
    from rowmill.engines.warm import WarmFleet
    from rowmill.executors.local import run

    case = cases(options)[name]
    job = Job.model_validate(job_of(name, case, options))
    began = time.perf_counter()
    fleet = WarmFleet(job.engine, log=Path(options.folder) / f"{name}.log")
    started = time.perf_counter() - began
    with (Path(options.folder) / "turn.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        summary = run(job, warm=fleet)
    verdict = summary.verdict
    told = {
        "start_s": round(started, 1),
        "rows_s": round(summary.asked / max(summary.seconds, 1e-9), 1),
        "seconds": round(summary.seconds, 1),
        "ok": summary.ok,
        "station": verdict.station if verdict else "",
        "says": verdict.line() if verdict else "",
        "signs": verdict.signs if verdict else {},
    }
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    fleet.shut()


# -- all of them ---------------------------------------------------------------------------


@contextlib.contextmanager
def endpoint(service_s: float) -> Iterator[str]:
    """Root of an endpoint that works on 32 rows at once and takes its time; ended by its pid."""
    command = [sys.executable, str(HERE / "endpoint.py"), "--slots", "32"]
    command += ["--service-s", str(service_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def start(
    name: str, case: Case, options: argparse.Namespace, url: str, slow_disk: Path | None
) -> subprocess.Popen[str]:
    """One job's process."""
    folder = Path(options.folder)
    shutil.rmtree(folder / f"{name}.out", ignore_errors=True)
    environment = {**os.environ, **case.environment}
    if "SLOW_BYTES_S" in case.environment:
        environment |= {"LD_PRELOAD": str(slow_disk), "SLOW_FOLDER": f"{folder}/{name}.out"}
    command = [sys.executable, __file__, "--work", name, "--folder", str(folder), "--url", url]
    for option in (
        "engine",
        "seconds",
        "disk_bytes_s",
        "set",
        *(["shape"] * bool(options.shape)),
    ):
        command += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    command += ["--together"] * bool(options.together)
    errors = (folder / f"{name}.errors").open("w")
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
    )


def told_of(
    process: subprocess.Popen[str], name: str, options: argparse.Namespace
) -> dict[str, Any]:
    """What a job's process said at its end."""
    try:
        said, _ = process.communicate(timeout=options.most_s)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    if said:
        return dict(json.loads(said.splitlines()[-1]))
    errors = (Path(options.folder) / f"{name}.errors").read_text("utf-8", "replace")
    return {"station": "", "says": f"it failed: {errors.strip()[-400:]}", "signs": {}}


def compare(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All jobs that are asked for; what was planted and what was said of each."""
    folder = Path(options.folder)
    known = cases(options)
    chosen = {name: known[name] for name in options.only.split(",") if name in known}
    chosen = chosen or known
    for case in {case.model(options.shape): case for case in chosen.values()}.values():
        shape = options.shape or case.shape
        make_model(folder / case.model(options.shape), shape, slow_words=case.slow_words)
    slow_disk = make_slow_disk(folder)
    if slow_disk is None and chosen.pop("disk", None):
        print("NOT RUN: disk: there is no C compiler to make a slow one with")
    for name, case in chosen.items():
        make_rows(folder / f"{name}.jsonl", case, rows_of(case, options.rows))
    found: dict[str, dict[str, Any]] = {}
    with endpoint(options.service_s) as url:
        waiting = dict(chosen)
        while waiting:
            now = list(waiting) if options.together else list(waiting)[:1]
            started = {
                name: start(name, waiting.pop(name), options, url, slow_disk) for name in now
            }
            for name, process in started.items():
                found[name] = {
                    "planted": chosen[name].planted,
                    **told_of(process, name, options),
                }
                tell(name, found[name])
    return found


def is_right(one: dict[str, Any]) -> bool:
    """Whether the verdict names what was planted, or accuses nobody where nothing was."""
    if one["planted"]:
        return bool(one["station"] == one["planted"])
    return one["station"] in WELL


def tell(name: str, one: dict[str, Any]) -> None:
    mark = "right" if is_right(one) else "WRONG"
    print(f"{mark}  {name}: planted {one['planted'] or 'nothing'}, said {one['station']!r}")
    print(f"       {one['says']}")
    told = {key: one[key] for key in ("rows_s", "seconds", "start_s", "ok") if key in one}
    print(f"       {told} {one['signs']}", flush=True)


def asked() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--engine", choices=("echo", "vllm"), default="echo")
    parser.add_argument("--only", default="")
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--service-s", type=float, default=0.5)
    parser.add_argument("--disk-bytes-s", type=float, default=200_000)
    parser.add_argument("--together", action="store_true")
    parser.add_argument(
        "--set", default="{}", help="settings of engine vllm, as JSON, for all jobs"
    )
    parser.add_argument(
        "--most-s", type=float, default=240.0, help="a job that takes longer is ended"
    )
    parser.add_argument("--folder", default="")
    parser.add_argument("--json", default="", help="file to write all to")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the jobs; the number of wrong verdicts."""
    # Beside this file lies a `vllm.py`, which is not the library.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    options = asked()
    if options.work:
        work(options.work, options)
        return 0
    began = time.perf_counter()
    made = "" if options.folder else tempfile.mkdtemp(prefix="rowmill-planted-")
    options.folder = options.folder or made
    try:
        found = compare(options)
    finally:
        shutil.rmtree(made or "/nonexistent", ignore_errors=True)
    wrong = [name for name, one in found.items() if not is_right(one)]
    print(
        f"{len(found) - len(wrong)} of {len(found)} right in {time.perf_counter() - began:.0f} s"
    )
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
