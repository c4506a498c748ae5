"""200,000 short texts in a file -> vectors in a file, on one GPU: rowmill beside `vllm.LLM.embed`, the same model and settings.

    python benchmarks/vllm_embed.py [--shapes bert,qwen] [--rows 200000] [--replicas 4] [--only texts,rowmill,ids] [--minutes 7.5]
    python benchmarks/vllm_embed.py --tiny --rows 2000        # on a CPU: does every line run, do the vectors agree

Weights are random, made here by transformers; the speed does not depend on them, and vectors are compared all the same.
`bert`: 6 layers of 384, mean of the tokens, as all-MiniLM-L6-v2; `qwen`: 28 layers of 1,024, the last token, as
Qwen3-Embedding-0.6B; nothing is asked of a hub. Each contender is a process of its own. Its time is from reading the
input to the last byte of its output, its engine started before; rowmill tells its start apart, and `all` is the whole
process, imports and start included. `texts` is `LLM.embed` as people write it; `ids` has them tokenised by
`encode_batch` first, counted in. A contender that needs longer than what is left for it is ended, and its line says so.
Lines are appended to `--out` as they come.

Where the time goes in `LLM.embed`: the model needs little on such a GPU, and each text costs vLLM about as much
processor time as a step of it (a request made, checked, packed, sent, scheduled, its vector packed, sent, unpacked,
wrapped), all in two processes. rowmill tokenises in a process of its own with all cores, hands ids over between two
steps by copies of one checked request, reads vectors without vLLM's wrapping, and has several engines on the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

# A vllm.py stands beside this file: the library is meant.
sys.path[:] = [
    one for one in sys.path if Path(one).resolve() != Path(__file__).resolve().parent
]

NAMES = ("texts", "rowmill", "ids")
SEATS, STEP_TOKENS, CONTEXT = 1024, 16384, 512
ENGINE = {
    "max_model_len": CONTEXT,
    "enforce_eager": True,
    "max_num_batched_tokens": STEP_TOKENS,
}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "true",
}
LEAST_S = 45.0
"""A contender that has less than this left is not begun: its engine would not even start."""
MAKE_S = 120.0


class Size(NamedTuple):
    """How large the models are, and what they are computed in."""

    bert: tuple[int, int, int]
    """Layers, width, heads."""
    qwen: tuple[int, int, int]
    head: int
    dtype: str
    memory: float
    """Share of the GPU's memory; on a CPU little, beside others."""


SIZES = {
    "real": Size((6, 384, 12), (28, 1024, 16), 128, "bfloat16", 0.6),
    "tiny": Size((2, 128, 4), (2, 128, 4), 32, "float32", 0.1),
}


def words_of(draw: random.Random) -> list[str]:
    """Words that nobody ever said, 20,000 of them."""
    parts = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    return sorted({"".join(draw.choices(parts, k=draw.randint(1, 4))) for _ in range(25_000)})[
        :20_000
    ]


def write_texts(rows: int, words: list[str], file: Path) -> None:
    """Texts of 3 to some 60 words, 16 in the mean."""
    draw = random.Random(2)
    with file.open("w", encoding="utf-8") as out:
        for number in range(rows):
            length = max(3, min(60, round(draw.lognormvariate(2.6, 0.6))))
            text = " ".join(draw.choices(words, k=length))
            out.write(json.dumps({"id": number, "text": text}) + "\n")


def make_model(shape: str, size: Size, folder: Path) -> None:
    """A folder with random weights, a tokenizer of these words, and how to pool."""
    import tokenizers
    import torch
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    words = words_of(random.Random(1))
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz", *words]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    layers, width, heads = size.bert if shape == "bert" else size.qwen
    own = {
        "vocab_size": len(vocabulary),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": CONTEXT if shape == "bert" else 32_768,
        "dtype": size.dtype,
    }
    torch.manual_seed(3)
    # Drawn in the type they are kept in: half the work.
    torch.set_default_dtype(getattr(torch, size.dtype))
    if shape == "bert":
        model: Any = transformers.BertModel(
            transformers.BertConfig(intermediate_size=4 * width, **own)
        )
    else:
        config: Any = transformers.Qwen3Config(
            intermediate_size=3 * width,
            num_key_value_heads=heads // 2,
            head_dim=size.head,
            **own,
        )
        model = transformers.Qwen3Model(config)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    write_pooling(shape, width, folder)


def write_pooling(shape: str, width: int, folder: Path) -> None:
    """How its vectors are made, in the files of sentence-transformers."""
    pooling = {
        "word_embedding_dimension": width,
        "pooling_mode_mean_tokens": shape == "bert",
        "pooling_mode_lasttoken": shape != "bert",
    }
    own = "sentence_transformers.models."
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": own + kind}
        for at, (path, kind) in enumerate(
            [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        )
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), "utf-8")
    (folder / "modules.json").write_text(json.dumps(modules), "utf-8")


def by_llm(args: argparse.Namespace, *, as_ids: bool) -> dict[str, Any]:
    """`LLM.embed`, and its vectors as Parquet."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer
    from vllm import LLM

    began = time.perf_counter()
    own: Any = settings(args)
    model = LLM(args.model, runner="pooling", max_num_seqs=SEATS, **own)
    start = time.perf_counter() - began
    began = time.perf_counter()
    with Path(args.source).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    prompts: list[Any] = [row["text"] for row in rows]
    if as_ids:
        tokenizer = Tokenizer.from_file(f"{args.model}/tokenizer.json")
        encoded = tokenizer.encode_batch_fast(prompts)
        prompts = [{"prompt_token_ids": one.ids} for one in encoded]
    outputs = model.embed(prompts, use_tqdm=False)
    vectors = np.array([one.outputs.embedding for one in outputs], np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    table = pa.table({"id": [row["id"] for row in rows], "rowmill_embedding": column})
    Path(args.target).mkdir()
    pq.write_table(table, f"{args.target}/part.parquet", compression="zstd")
    return {"seconds": time.perf_counter() - began, "start": start, "about": ""}


def by_rowmill(args: argparse.Namespace) -> dict[str, Any]:
    """A run as any: journaled, judged, published as Parquet."""
    import rowmill
    from rowmill.report.status import status

    replicas = {} if args.replicas == "auto" else {"replicas": int(args.replicas)}
    output = f"{args.target}-run"
    job = rowmill.Job.model_validate(
        {
            "source": args.source,
            "output": {"path": output, "format": "parquet"},
            "kind": "embed",
            "engine": {
                "name": "vllm",
                "model": args.model,
                "seats": SEATS,
                **settings(args),
                **replicas,
            },
        }
    )
    began = time.perf_counter()
    summary = rowmill.run(job)
    whole = time.perf_counter() - began
    shutil.copytree(f"{output}/results", args.target)
    verdict = status(output).verdict
    return {
        "seconds": whole - summary.engine_start_s,
        "start": summary.engine_start_s,
        "about": verdict.says if verdict else "",
    }


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Settings of vLLM's, the same for all."""
    size = SIZES[args.size]
    return {**ENGINE, "dtype": size.dtype, "gpu_memory_utilization": size.memory}


def contender(args: argparse.Namespace) -> None:
    """One run, told in a file: libraries write on stdout as they please."""
    if args.contender == "make":
        make_model(args.shapes, SIZES[args.size], Path(args.model))
        return
    told = (
        by_rowmill(args)
        if args.contender == "rowmill"
        else by_llm(args, as_ids=args.contender == "ids")
    )
    Path(f"{args.target}.json").write_text(json.dumps(told), "utf-8")
    # All is said; vLLM's own end takes 10 s, and who waits for this process ends what it leaves.
    os._exit(0)


def cosine(folder: Path, other: Path) -> float:
    """The least of the cosines between two contenders' vectors, row by row."""
    import numpy as np
    import pyarrow.parquet as pq

    found = []
    for one in (folder, other):
        table = pq.read_table(one).sort_by("id")
        column: Any = table["rowmill_embedding"].combine_chunks()
        matrix = column.flatten().to_numpy().reshape(len(column), -1)
        found.append(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))
    return float((found[0] * found[1]).sum(1).min())


class Course:
    """The contenders, one after the other, within the time there is."""

    def __init__(self, args: argparse.Namespace, root: Path) -> None:
        self._args, self._root = args, root
        self._ends = time.monotonic() + 60 * args.minutes
        self._source = root / "texts.jsonl"
        self._made: dict[str, str] = {}
        self._rates: dict[str, float] = {}
        self._first: dict[str, Path] = {}
        """By shape: the contender that the others stand beside."""
        self._told: list[str] = []

    def run(self) -> None:
        """All of them, and a table."""
        write_texts(self._args.rows, words_of(random.Random(1)), self._source)
        self._say(f"\n{self._args.rows:,} texts, models of {self._args.size} size\n")
        self._say(
            "| shape | contender | rows/s | beside | seconds | start | all | least cosine |"
        )
        self._say("|---|---|---|---|---|---|---|---|")
        for shape, name in self._order():
            self._say(f"| {shape} | {name} | {self._one(shape, name)} |")
        for told in self._told:
            self._say(told)

    def _order(self) -> Iterator[tuple[str, str]]:
        """What matters most first, of each shape: time may run out."""
        names = self._args.only.split(",")
        for some in (names[:2], names[2:]):
            for shape in self._args.shapes.split(","):
                for name in some:
                    yield shape, name

    def _one(self, shape: str, name: str) -> str:
        """Run a contender; what the table says of it."""
        if shape not in self._made:
            self._made[shape] = self._spawn("make", shape, MAKE_S)
        if self._made[shape] != "done":
            return f"void: no model was made ({self._made[shape]}); see {self._args.log}"
        left_s = self._ends - time.monotonic()
        if left_s < LEAST_S:
            return f"not run: {left_s:.0f} s were left"
        began = time.monotonic()
        ended = self._spawn(name, shape, min(left_s, 60 * self._args.most_minutes))
        whole = time.monotonic() - began
        if ended != "done":
            return f"void: {ended} after {whole:.0f} s; see {self._args.log}"
        target = self._root / f"{shape}-{name}"
        told = json.loads(Path(f"{target}.json").read_text("utf-8"))
        first = self._first.setdefault(shape, target)
        rate = self._args.rows / told["seconds"]
        beside = rate / self._rates.setdefault(shape, rate)
        if told["about"]:
            self._told.append(f"\n{shape}, {name}: {told['about']}")
        return (
            f"{rate:,.0f} | {beside:.2f}x | {told['seconds']:.1f} | {told['start']:.0f} s"
            f" | {whole:.0f} s | {cosine(first, target):.5f}"
        )

    def _spawn(self, name: str, shape: str, most_s: float) -> str:
        """`done`, or what became of it; nothing that it started is left."""
        own = {
            "contender": name,
            "shapes": shape,
            "size": self._args.size,
            "model": str(self._root / f"{shape}_model"),
            "source": str(self._source),
            "target": str(self._root / f"{shape}-{name}"),
            "replicas": self._args.replicas,
        }
        call = [sys.executable, __file__, *(f"--{key}={value}" for key, value in own.items())]
        with Path(self._args.log).open("ab") as log:
            process = subprocess.Popen(
                call,
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, **os.environ},
                start_new_session=True,
            )
            try:
                code = process.wait(most_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code is None:
            return "out of time"
        return f"it ended with {code}" if code else "done"

    def _say(self, line: str) -> None:
        """On stdout and into the page, at once: what is said outlives this process."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        with Path(self._args.out).open("a", encoding="utf-8") as page:
            page.write(f"{line}\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", default="bert,qwen", help="by commas")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--replicas", default="4")
    parser.add_argument("--only", default=",".join(NAMES), help="contenders, by commas")
    parser.add_argument("--minutes", type=float, default=7.5, help="for all together")
    parser.add_argument("--most-minutes", type=float, default=3.0, help="for each of them")
    parser.add_argument(
        "--tiny",
        action="store_const",
        dest="size",
        const="tiny",
        default="real",
        help="small models, in float32",
    )
    parser.add_argument("--out", default="vllm_embed.md")
    parser.add_argument("--log", default="vllm_embed.log")
    for hidden in ("size", "contender", "model", "source", "target"):
        default = "real" if hidden == "size" else ""
        parser.add_argument(f"--{hidden}", default=default, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        contender(args)
        return
    asked = {*args.shapes.split(","), *args.only.split(",")}
    if unknown := asked - {"bert", "qwen", *NAMES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if find_spec("vllm") is None:
        sys.stdout.write("nothing was measured: vLLM is not installed\n")
        return
    with tempfile.TemporaryDirectory(prefix="vllm-embed-") as root:
        Course(args, Path(root)).run()


if __name__ == "__main__":
    main()
