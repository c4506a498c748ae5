"""SGLang on one GPU: as it is, sorted, through rowmill, and beside vLLM; the contract suite on it while engines open.

    python benchmarks/sglang.py --tokenizer DIR --vllm-path SITE_OF_VLLM --sglang-path SITE_OF_SGLANG --json sglang.json
    python benchmarks/sglang.py --tokenizer DIR --device cpu --shape tiny --rows 20 --pool 4096 --only sglang-ids,rowmill

4,000 rows, 400 beginnings of 1,000 tokens in a pool of 192k, random weights, answers of 16 tokens. Each run has texts of
its own, of the same lengths, so no cache carries over. Each library sits in a process of its own, which may have a Python or
a folder of packages of its own; they open side by side, then runs take turns, the order rotated each round.
FILE.json holds what is known after each step, and whatever ends it early, it ends before `--max-seconds`.
`--sgl NAME=VALUE` sets an argument of SGLang, for it alone and in rowmill.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
CONTEXT = 8192
OPEN_S, RUN_S = 260.0, 150.0
"""Longest waits: for all engines to open, and for one run."""
CPU = {"device": "cpu", "attention_backend": "torch_native", "disable_cuda_graph": True}


class Contender(NamedTuple):
    """One way to have a file answered."""

    side: str
    """The process it lives in."""
    way: str
    does: str


CONTENDERS = {
    "sglang-ids": Contender(
        "sglang", "ids", "`Engine.generate` on ids in file order, all at once"
    ),
    "rowmill": Contender("rowmill-sglang", "auto", "rowmill with SGLang"),
    "sglang-sorted": Contender(
        "sglang", "sorted", "`Engine.generate` on ids, sorted, all at once"
    ),
    "rowmill-file": Contender("rowmill-sglang", "file", 'the same with `plan.order = "file"`'),
    "vllm-rowmill": Contender("rowmill-vllm", "auto", "rowmill with vLLM"),
    "vllm-ids": Contender("vllm", "ids", "`LLM.generate` on ids in file order"),
    "sglang-texts": Contender("sglang", "texts", "`Engine.generate` on texts in file order"),
    "vllm-texts": Contender("vllm", "texts", "`LLM.generate` on texts in file order"),
}
BASELINE = "sglang-ids"


# In a process of its own.


class Library:
    """SGLang or vLLM as it comes: a file of rows -> a file of answers."""

    def __init__(self, told: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self._is_sglang = told["side"] == "sglang"
        self._tokenizer = Tokenizer.from_file(str(Path(told["model"]) / "tokenizer.json"))
        if self._is_sglang:
            import sglang

            self._engine: Any = sglang.Engine(model_path=told["model"], **told["settings"])
            self.about = f"SGLang {sglang.__version__}"
        else:
            import vllm

            self._params = vllm.SamplingParams
            self._engine = vllm.LLM(model=told["model"], **told["settings"])
            self.about = f"vLLM {vllm.__version__}"

    def run(self, way: str, source: Path, out: Path) -> float:
        """Answer a file; the seconds it took."""
        began = time.perf_counter()
        rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
        order = list(range(len(rows)))
        prompts: list[Any] = [row["prompt"] for row in rows]
        if way != "texts":
            prompts = [one.ids for one in self._tokenizer.encode_batch(prompts)]
        if way == "sorted":
            order.sort(key=prompts.__getitem__)
        asked = [prompts[i] for i in order]
        limits = [rows[i]["max_tokens"] for i in order]
        ask = self._of_sglang if self._is_sglang else self._of_vllm
        answers = dict(zip(order, ask(asked, limits), strict=True))
        with out.open("w", encoding="utf-8") as file:
            for i, row in enumerate(rows):
                file.write(json.dumps({"id": row["id"], **answers[i]}) + "\n")
        return time.perf_counter() - began

    def _of_sglang(self, asked: list[Any], limits: list[int]) -> list[dict[str, Any]]:
        params = [
            {"max_new_tokens": limit, "ignore_eos": True, "temperature": 0} for limit in limits
        ]
        name = "prompt" if isinstance(asked[0], str) else "input_ids"
        found = self._engine.generate(**{name: asked}, sampling_params=params)
        return [
            {
                "text": one["text"],
                "prompt_tokens": one["meta_info"]["prompt_tokens"],
                "output_tokens": one["meta_info"]["completion_tokens"],
                "cached_tokens": one["meta_info"]["cached_tokens"],
            }
            for one in found
        ]

    def _of_vllm(self, asked: list[Any], limits: list[int]) -> list[dict[str, Any]]:
        params = [
            self._params(max_tokens=limit, ignore_eos=True, temperature=0) for limit in limits
        ]
        prompts = [one if isinstance(one, str) else {"prompt_token_ids": one} for one in asked]
        found = self._engine.generate(prompts, params, use_tqdm=False)
        return [
            {
                "text": one.outputs[0].text,
                "prompt_tokens": len(one.prompt_token_ids),
                "output_tokens": len(one.outputs[0].token_ids),
                "cached_tokens": one.num_cached_tokens or 0,
            }
            for one in found
        ]

    def close(self) -> None:
        """End it; what it leaves the parent ends."""
        if self._is_sglang:
            self._engine.shutdown()


class Rowmill:
    """Rowmill with its engine open: a file of rows -> published results."""

    def __init__(self, told: dict[str, Any]) -> None:
        from rowmill.config import EngineConfig
        from rowmill.engines.warm import WarmFleet

        name = told["side"].removeprefix("rowmill-")
        self._engine = EngineConfig(name=name, model=told["model"], **told["settings"])
        self._fleet = WarmFleet(
            self._engine, log=Path(told["folder"]) / f"{told['side']}-engine.log"
        )
        limits = self._fleet.limits
        self.about = f"{limits.about}, {limits.seats} seats, {limits.kv_tokens} tokens"

    def run(self, way: str, source: Path, out: Path) -> float:
        """Answer a file; the seconds it took."""
        from rowmill.config import Job
        from rowmill.executors.local import run

        job = Job.model_validate(
            {
                "source": str(source),
                "output": str(out.with_suffix("")),
                "engine": self._engine.model_dump(),
                "raw": True,
                "sampling": {"temperature": 0},
                "plan": {"order": way},
            }
        )
        began = time.perf_counter()
        run(job, warm=self._fleet)
        return time.perf_counter() - began

    def close(self) -> None:
        """End the engine."""
        self._fleet.shut()


def weigh(folder: Path) -> None:
    """Weights for a model of the shape in `folder`, drawn so wide that its likeliest token does not hang on rounding."""
    import numpy as np
    from safetensors.numpy import save_file

    told = json.loads((folder / "config.json").read_text("utf-8"))
    hidden, inner = told["hidden_size"], told["intermediate_size"]
    narrow = hidden // told["num_attention_heads"] * told["num_key_value_heads"]
    random = np.random.default_rng(1)

    def drawn(*shape: int) -> Any:
        return random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    found = {"model.embed_tokens.weight": random.normal(0, 1, (told["vocab_size"], hidden))}
    found["model.norm.weight"] = np.ones(hidden)
    for layer in range(told["num_hidden_layers"]):
        here = f"model.layers.{layer}"
        for name, out in (("q", hidden), ("k", narrow), ("v", narrow)):
            found[f"{here}.self_attn.{name}_proj.weight"] = drawn(out, hidden)
            found[f"{here}.self_attn.{name}_proj.bias"] = np.zeros(out)
        found[f"{here}.self_attn.o_proj.weight"] = drawn(hidden, hidden)
        for name, shape in (
            ("gate", (inner, hidden)),
            ("up", (inner, hidden)),
            ("down", (hidden, inner)),
        ):
            found[f"{here}.mlp.{name}_proj.weight"] = drawn(*shape)
        for name in ("input", "post_attention"):
            found[f"{here}.{name}_layernorm.weight"] = np.ones(hidden)
    whole = {name: value.astype(np.float16) for name, value in found.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def contract(told: dict[str, Any]) -> dict[str, Any]:
    """The contract suite on the real engine, with a small model."""
    import numpy as np

    from rowmill.config import EngineConfig
    from rowmill.engines import sglang
    from rowmill.rows import Prompts, Sampling
    from rowmill.testing import check_engine

    drawn = np.random.default_rng(1).integers(100, 20_000, (8, 200)).astype(np.uint32)
    drawn[4:, :150] = drawn[0, :150]
    rows = Prompts(
        keys=list(range(8)),
        ids=drawn.reshape(-1),
        stops=np.arange(200, 1601, 200, dtype=np.int64),
        max_tokens=[8] * 8,
        samplings=[Sampling(temperature=0)],
        sampling_of=[0] * 8,
        wires=[],
        wire_fields=[],
    )
    engine = EngineConfig(name="sglang", model=told["model"], **told["settings"])
    found = check_engine(sglang, engine, rows=rows, agree=told["agree"])
    return {"ok": sum(one.status == "ok" for one in found), "of": len(found)}


def serve(told: dict[str, Any]) -> None:
    """Open, then answer files as lines come; each reply is a line."""
    # Libraries print; what they print is their log.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(**found: Any) -> None:
        replies.write(json.dumps(found) + "\n")
        replies.flush()

    began = time.perf_counter()
    try:
        if told["side"] == "contract":
            reply(contract=contract(told), seconds=time.perf_counter() - began)
            os._exit(0)
        opened = Rowmill(told) if told["side"].startswith("rowmill") else Library(told)
        reply(about=opened.about, seconds=time.perf_counter() - began)
        for line in sys.stdin:
            task = json.loads(line)
            reply(seconds=opened.run(task["way"], Path(task["source"]), Path(task["out"])))
        opened.close()
    # The border of the process: the parent is told, whatever it was.
    except BaseException as error:
        traceback.print_exc()
        reply(failed=f"{type(error).__name__}: {error}"[:600])
    replies.flush()
    os._exit(0)


# The parent.


class Bench:
    """All of it: what is open, what was measured."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        from children import Child
        from shapes import make_model

        from rowmill.bench.words import Words

        self._start, self._make_model = Child, make_model
        self.options, self.folder = options, folder
        self.ends_at = time.monotonic() + options.max_seconds
        self.model = options.model or make_model(options.shape, folder, options.tokenizer)
        self.words = Words(self.model)
        self.found: dict[str, Any] = {
            "command": " ".join(sys.argv),
            "machine": platform.processor() or platform.machine(),
            "gpu": gpu_name(),
            "cores": os.cpu_count(),
            "rows": options.rows,
            "pool": options.pool,
            "sglang": self._of_sglang(),
            "vllm": self._of_vllm(),
            "sides": {},
            "contract": None,
            "runs": [],
        }
        wanted = options.only.split(",") if options.only else list(CONTENDERS)
        self.names = [name for name in CONTENDERS if name in wanted]
        self.children: dict[str, Any] = {}
        self.took_s: dict[str, float] = {}
        """Of each contender: its last run."""

    def left_s(self) -> float:
        """Until it must be over."""
        return self.ends_at - time.monotonic()

    def save(self) -> None:
        """Write down what is known."""
        self.found["table"] = table(self.found["runs"])
        draft = self.options.json.with_suffix(".new")
        draft.write_text(json.dumps(self.found, indent=1), "utf-8")
        draft.replace(self.options.json)

    def open(self) -> None:
        """Open all at once, and see the contract kept meanwhile."""
        sides = dict.fromkeys(CONTENDERS[name].side for name in self.names)
        if not self.options.no_contract:
            sides = {"contract": None, **sides}
        for side in sides:
            self.children[side] = self._child(side)
        deadline = time.monotonic() + min(OPEN_S, self.left_s())
        for side in self.children:
            self._opened(side, deadline)
        for side, answer in list(self.found["sides"].items()):
            if "failed" in answer:
                # It may have been short of memory that another held while it looked.
                self.children[side].end()
                self.children[side].start()
                self._opened(side, deadline)
        self.found["contract"] = self.found["sides"].get("contract")
        for side, answer in self.found["sides"].items():
            if side == "contract" or "failed" in answer:
                self.children.pop(side).end()

    def _opened(self, side: str, deadline: float) -> None:
        answer = self.children[side].answer(max(1.0, deadline - time.monotonic()))
        self.found["sides"][side] = answer
        print(side, answer, flush=True)
        self.save()

    def _child(self, side: str) -> Any:
        is_vllm = side.endswith("vllm")
        settings = self._of_vllm() if is_vllm else self._of_sglang()
        if side in ("rowmill-sglang", "contract"):
            settings["max_model_len"] = settings.pop("context_length")
        told = {
            "side": side,
            "model": str(self.model),
            "settings": settings,
            "folder": str(self.folder),
            "agree": 0.75,
        }
        if side == "contract" and self.options.model is None:
            small = self._make_model("tiny", self.folder / "weighed", self.options.tokenizer)
            weigh(small)
            told["model"] = str(small)
            settings.pop("load_format", None)
        python = self.options.vllm_python if is_vllm else self.options.sglang_python
        path = self.options.vllm_path if is_vllm else self.options.sglang_path
        return self._start("sglang.py", side, told, self.folder, python=python, path=path)

    def _of_sglang(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "context_length": CONTEXT,
            "max_total_tokens": self.options.pool,
            # Others open at the same time; the pool is what is set above.
            "mem_fraction_static": 0.6,
            "attention_backend": "triton",
            "sampling_backend": "pytorch",
        }
        if self.options.model is None:
            settings["load_format"] = "dummy"
        if self.options.device == "cpu":
            settings |= CPU
        for word in self.options.sgl:
            name, _, value = word.partition("=")
            try:
                settings[name] = json.loads(value)
            except ValueError:
                settings[name] = value
        return settings

    def _of_vllm(self) -> dict[str, Any]:
        from rowmill.size import read_shape

        shape = read_shape(self.model)
        assert shape is not None
        settings: dict[str, Any] = {
            "max_model_len": CONTEXT,
            # With its bytes given it does not look at how much memory others hold meanwhile.
            "kv_cache_memory_bytes": self.options.pool * shape.kv_bytes(),
            "gpu_memory_utilization": 0.25,
        }
        if self.options.model is None:
            settings["load_format"] = "dummy"
        return settings

    def rounds(self) -> None:
        """A small file each, then rounds."""
        for name in self.names:
            self._run(name, 0, max(20, self.options.rows // 20))
        for number in range(1, self.options.rounds + 1):
            at = (number - 1) % max(1, len(self.names))
            for name in [*self.names[at:], *self.names[:at]]:
                self._run(name, number, self.options.rows)

    def _run(self, name: str, number: int, rows: int) -> None:
        from rowmill.bench.answers import checked, plain_answers, rowmill_answers
        from rowmill.bench.workloads import write_workload

        side, way, _ = CONTENDERS[name]
        child = self.children.get(side)
        if child is None or self.left_s() < 5 + 1.1 * self.took_s.get(name, 0.0):
            print(f"{name}, round {number}: left out", flush=True)
            return
        seed = 1000 * number + list(CONTENDERS).index(name)
        source, out = (
            self.folder / f"{name}-{number}.jsonl",
            self.folder / f"{name}-{number}.out",
        )
        work = write_workload(
            "prefixes", source, words=self.words, seed=seed, rows=rows, context=CONTEXT
        )
        # A run that lies there would be found done.
        shutil.rmtree(out.with_suffix(""), ignore_errors=True)
        task = {"way": way, "source": str(source), "out": str(out)}
        answer = child.ask(task, min(RUN_S, self.left_s()))
        if "failed" in answer:
            print(f"{name}, round {number}: {answer['failed']}", flush=True)
            self.found["sides"][side] |= answer
            self.children.pop(side).end()
            self.save()
            return
        results = (
            rowmill_answers(sorted((out.with_suffix("") / "results").glob("*.jsonl")))
            if side.startswith("rowmill")
            else plain_answers(out)
        )
        run = checked(work, results, answer["seconds"])
        self.took_s[name] = run.seconds
        if number:
            self.found["runs"].append(
                {
                    "contender": name,
                    "round": number,
                    "seconds": round(run.seconds, 3),
                    "rows": run.rows,
                    "prompt_tokens": run.prompt_tokens,
                    "output_tokens": run.output_tokens,
                    "cached_tokens": run.cached_tokens,
                    "invalid": run.invalid,
                }
            )
        print(f"{name}, round {number}: {run.seconds:.2f} s {run.invalid}", flush=True)
        source.unlink()
        self.save()

    def close(self) -> None:
        """End all."""
        for child in self.children.values():
            child.end()


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Markdown: a line a contender; ratios are medians of ratios within rounds."""
    lines = [
        f"| contender | median s (range) | runs | rows/s | cached | beside {BASELINE} | what it is |",
        "|---|---|---|---|---|---|---|",
    ]
    valid = [run for run in runs if not run["invalid"]]
    base = {run["round"]: run["seconds"] for run in valid if run["contender"] == BASELINE}
    for name, contender in CONTENDERS.items():
        mine = [run for run in valid if run["contender"] == name]
        if not mine:
            continue
        times = [run["seconds"] for run in mine]
        ratios = [base[run["round"]] / run["seconds"] for run in mine if run["round"] in base]
        cached = sum(r["cached_tokens"] for r in mine) / sum(r["prompt_tokens"] for r in mine)
        middle = statistics.median(times)
        beside = f"{statistics.median(ratios):.2f}x" if ratios else ""
        lines.append(
            f"| {name} | {middle:.2f} ({min(times):.2f} to {max(times):.2f}) | {len(mine)} |"
            f" {mine[0]['rows'] / middle:,.0f} | {cached:.0%} | {beside} | {contender.does} |"
        )
    return lines


def gpu_name() -> str:
    """As the driver's tool tells it; empty where there is none."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def read_options() -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json")
    cli.add_argument("--model", type=Path, help="a folder with weights, in place of a shape")
    cli.add_argument("--shape", default="1.5b")
    cli.add_argument("--rows", type=int, default=4000)
    cli.add_argument("--pool", type=int, default=192_000, help="tokens of KV cache")
    cli.add_argument("--rounds", type=int, default=2)
    cli.add_argument("--max-seconds", type=float, default=520.0)
    cli.add_argument("--only", default="", help=f"of {', '.join(CONTENDERS)}")
    cli.add_argument("--no-contract", action="store_true")
    cli.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    cli.add_argument("--sgl", action="append", default=[], metavar="NAME=VALUE")
    for library in ("sglang", "vllm"):
        cli.add_argument(f"--{library}-python", default=sys.executable)
        cli.add_argument(f"--{library}-path", default="", help="a folder of packages")
    cli.add_argument("--folder", type=Path, help="where logs and files stay; a temporary one")
    cli.add_argument("--json", type=Path, default=Path("sglang.json"))
    cli.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    return cli.parse_args()


def main() -> None:
    options = read_options()
    if options.serve:
        serve(json.loads(options.serve.read_text("utf-8")))
        return
    if options.tokenizer is None and options.model is None:
        print(
            "nothing was measured: give `--tokenizer DIR`, on a machine with a GPU and SGLang"
        )
        return
    sys.path.insert(0, str(HERE.parent / "src"))
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0" if options.device == "cuda" else "")
    with tempfile.TemporaryDirectory(prefix="rowmill-sglang-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, folder)
        try:
            bench.open()
            bench.rounds()
        finally:
            bench.close()
            bench.save()
        print("contract:", bench.found["contract"])
        print("\n".join(bench.found["table"]))


if __name__ == "__main__":
    main()
