"""200,000 short texts in a file -> vectors in a file, on one GPU: rowmill beside `vllm.LLM.embed`, the same model and settings.

    python benchmarks/vllm_embed.py --shape bert [--rows 200000] [--replicas 4] [--only texts,ids,rowmill]

Weights are random, made here by transformers; the speed does not depend on them, and vectors are compared all the same.
`bert`: 6 layers of 384, mean of the tokens, as all-MiniLM-L6-v2; `qwen`: 28 layers of 1,024, the last token, as
Qwen3-Embedding-0.6B. Each contender is a process of its own. Its time is from reading the input to the last byte of its
output, its engine started before (rowmill tells its start apart). `texts` is `LLM.embed` as people write it; `ids` has
them tokenised by `encode_batch` first, counted in.

Where the time goes in `LLM.embed`: the model needs little on such a GPU, and each text costs vLLM about as much
processor time as a step of it (a request made, checked, packed, sent, scheduled, its vector packed, sent, unpacked,
wrapped), all in two processes. rowmill tokenises in a process of its own with all cores, hands ids over between two
steps by copies of one checked request, reads vectors without vLLM's wrapping, and has several engines on the GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# A vllm.py stands beside this file: the library is meant.
sys.path[:] = [
    one for one in sys.path if Path(one).resolve() != Path(__file__).resolve().parent
]

NAMES = ("texts", "ids", "rowmill")
SEATS, STEP_TOKENS, CONTEXT = 1024, 16384, 512
ENGINE = {
    "dtype": "bfloat16",
    "max_model_len": CONTEXT,
    "enforce_eager": True,
    "max_num_batched_tokens": STEP_TOKENS,
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


def make_model(shape: str, words: list[str], folder: Path) -> None:
    """A folder with random weights, a tokenizer of these words, and how to pool."""
    import tokenizers
    import torch
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz", *words]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    torch.manual_seed(3)
    if shape == "bert":
        config: Any = transformers.BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=12,
            intermediate_size=1536,
            max_position_embeddings=CONTEXT,
        )
        model: Any = transformers.BertModel(config)
    else:
        config = transformers.Qwen3Config(
            vocab_size=len(vocabulary),
            hidden_size=1024,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            intermediate_size=3072,
            max_position_embeddings=32_768,
        )
        model = transformers.Qwen3Model(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    pooling = {
        "word_embedding_dimension": config.hidden_size,
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


def by_llm(folder: str, source: str, target: str, *, as_ids: bool) -> dict[str, float]:
    """`LLM.embed`, and its vectors as Parquet."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer
    from vllm import LLM

    began = time.perf_counter()
    model = LLM(folder, runner="pooling", max_num_seqs=SEATS, **ENGINE)  # type: ignore[arg-type]
    start = time.perf_counter() - began
    began = time.perf_counter()
    with Path(source).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    prompts: list[Any] = [row["text"] for row in rows]
    if as_ids:
        encoded = Tokenizer.from_file(f"{folder}/tokenizer.json").encode_batch_fast(prompts)
        prompts = [{"prompt_token_ids": one.ids} for one in encoded]
    outputs = model.embed(prompts, use_tqdm=False)
    vectors = np.array([one.outputs.embedding for one in outputs], np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    table = pa.table({"id": [row["id"] for row in rows], "rowmill_embedding": column})
    Path(target).mkdir()
    pq.write_table(table, f"{target}/part.parquet", compression="zstd")
    return {"seconds": time.perf_counter() - began, "start": start}


def by_rowmill(folder: str, source: str, target: str, replicas: str) -> dict[str, float]:
    """A run as any: journaled, judged, published as Parquet."""
    import rowmill

    own = {**ENGINE, "replicas": int(replicas)} if replicas != "auto" else dict(ENGINE)
    job = rowmill.Job.model_validate(
        {
            "source": source,
            "output": {"path": f"{target}-run", "format": "parquet"},
            "kind": "embed",
            "engine": {"name": "vllm", "model": folder, "seats": SEATS, **own},
        }
    )
    began = time.perf_counter()
    summary = rowmill.run(job)
    whole = time.perf_counter() - began
    shutil.copytree(f"{target}-run/results", target)
    return {"seconds": whole - summary.engine_start_s, "start": summary.engine_start_s}


def contender(args: argparse.Namespace) -> None:
    """One run, told as the last line on stdout."""
    place = (args.model, args.source, args.target)
    told = (
        by_rowmill(*place, args.replicas)
        if args.contender == "rowmill"
        else by_llm(*place, as_ids=args.contender == "ids")
    )
    sys.stdout.write(json.dumps(told) + "\n")


def cosine(folder: Path, other: Path) -> float:
    """The least of the cosines between two contenders' vectors, row by row."""
    import numpy as np
    import pyarrow.parquet as pq

    found = []
    for one in (folder, other):
        column = pq.read_table(one)["rowmill_embedding"].combine_chunks()
        matrix = column.flatten().to_numpy().reshape(len(column), -1)
        found.append(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))
    return float((found[0] * found[1]).sum(1).min())


def compare(args: argparse.Namespace) -> None:
    """All contenders, one after the other, and a table."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "model"
        source, words = Path(root) / "texts.jsonl", words_of(random.Random(1))
        write_texts(args.rows, words, source)
        make_model(args.shape, words, folder)
        sys.stdout.write(
            "| contender | rows/s | seconds | engine start | least cosine |\n|---|---|---|---|---|\n"
        )
        names = args.only.split(",")
        for name in names:
            target = Path(root) / name
            call = [sys.executable, __file__, "--contender", name, "--model", str(folder)]
            call += [
                "--source",
                str(source),
                "--target",
                str(target),
                "--replicas",
                args.replicas,
            ]
            with Path(args.log).open("ab") as log:
                done = subprocess.run(call, stdout=subprocess.PIPE, stderr=log, check=True)
            told = json.loads(done.stdout.splitlines()[-1])
            near = cosine(Path(root) / names[0], target)
            sys.stdout.write(
                f"| {name} | {args.rows / told['seconds']:,.0f} | {told['seconds']:.1f}"
                f" | {told['start']:.0f} s | {near:.5f} |\n"
            )
            sys.stdout.flush()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=("bert", "qwen"), default="bert")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--replicas", default="4")
    parser.add_argument("--only", default="texts,rowmill")
    parser.add_argument("--log", default="vllm_embed.log")
    parser.add_argument("--contender", default="")
    parser.add_argument("--model", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--target", default="")
    args = parser.parse_args()
    if args.contender:
        contender(args)
    else:
        compare(args)


if __name__ == "__main__":
    main()
