"""How near the probabilities of labels are to plain transformers in float32, engine by engine and type by type.

    python benchmarks/labels.py MODEL_FOLDER [--engines transformers,vllm] [--rows 100]
    python benchmarks/labels.py MODEL_FOLDER --engines llamacpp --gguf FILE     # the same weights
    python benchmarks/labels.py MODEL_FOLDER --engines http --url URL           # a vLLM that serves the folder

MODEL_FOLDER is a language model with a chat template, as Hugging Face lays it out. Reviews are put together of a few
words; each gets a share for each of five labels of one to four tokens, some of which begin others. Printed are the
largest and the mean difference of a share, and how many rows get another label.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rowmill.config import Job
from rowmill.engines import open_engine
from rowmill.engines.verdicts import softmax
from rowmill.executors.opening import understand
from rowmill.rows import Outcome, Prompts, Request, Sampling
from rowmill.tokens import open_tokenizer
from rowmill.tokens.labels import encode_labels

# A vllm.py stands beside this file: the library is meant.
sys.path[:] = [
    one for one in sys.path if Path(one).resolve() != Path(__file__).resolve().parent
]

LABELS = ("positive", "negative", "no", "not sure", "not sure at all")
WORDS = (
    "good",
    "bad",
    "fine",
    "broke",
    "love",
    "hate",
    "cheap",
    "works",
    "fails",
    "never",
    "it",
    "was",
)
VLLM = {"enforce_eager": True, "gpu_memory_utilization": 0.5}


class All:
    """A feed of one batch."""

    def __init__(self, prompts: Prompts) -> None:
        self._left: Prompts | None = prompts

    def take(self, *, wait: bool) -> Prompts | None:
        """See `protocol.Feed`."""
        del wait
        left, self._left = self._left, None
        return left


def job_of(folder: str, name: str, dtype: str, place: str = "") -> Job:
    """A job of kind `classify`; `place`: of engines that have their own, a file or a URL."""
    model: dict[str, Any] = {"model": folder, "dtype": dtype}
    if name == "vllm":
        model |= VLLM
    elif name == "llamacpp":
        model = {"model": place}
    elif name == "http":
        model = {"url": place, "tokenizer": folder}
    return Job.model_validate(
        {
            "kind": "classify",
            "prompt": "Is this review positive or negative? {text}",
            "classify": {"labels": LABELS},
            "engine": {
                "name": name,
                "max_model_len": 512,
                **model,
            },
        }
    )


def prompts_of(job: Job, number: int) -> Prompts:
    """Rows as they go to an engine."""
    words, draw = understand(job), random.Random(1)
    requests = []
    for key in range(number):
        text = " ".join(draw.choices(WORDS, k=draw.randint(3, 60)))
        content = job.prompt.format(text=text)
        messages = [{"role": "user", "content": content}]
        requests.append(Request(key, Sampling(temperature=0), messages=messages))
    return words.measure.prompts(requests, lambda _, error: sys.exit(str(error)))


def plain(folder: str, prompts: Prompts, job: Job) -> Any:
    """Shares by one forward pass a label, nothing padded, float32."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = open_tokenizer(job.engine)
    if tokenizer is None:
        sys.exit("the model brings no tokenizer.json")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    model, rows = model.to(device), []
    for ids in prompts.row_ids():
        sums = []
        for label in encode_labels(job.classify, tokenizer).ids:
            whole = torch.tensor([[*ids.tolist(), *label]], device=device)
            with torch.inference_mode():
                logprobs = torch.log_softmax(model(input_ids=whole).logits[0], dim=-1)
            at = len(ids) - 1
            sums.append(sum(float(logprobs[at + i, token]) for i, token in enumerate(label)))
        rows.append(softmax(np.array(sums)))
    return np.array(rows)


def shares(job: Job, prompts: Prompts) -> Any:
    """The same by an engine."""
    engine = open_engine(understand(job).job.engine)
    found: list[Outcome] = [one for some in engine.run(All(prompts)) for one in some]
    engine.close()
    found.sort(key=lambda outcome: outcome.key)
    return np.array([softmax(np.frombuffer(o.embedding or b"", "<f4")) for o in found])


def main() -> None:
    """Print a line for each engine and type."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--engines", default="transformers,vllm")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--gguf", default="")
    parser.add_argument("--url", default="")
    asked = parser.parse_args()
    folder = str(Path(asked.model).expanduser())
    first = job_of(folder, "transformers", "float32")
    prompts = prompts_of(first, asked.rows)
    reference = plain(folder, prompts, first)
    for name in asked.engines.split(","):
        place = {"llamacpp": asked.gguf, "http": asked.url}.get(name, "")
        for dtype in ("its own",) if place else ("float32", "bfloat16"):
            found = shares(job_of(folder, name, dtype, place), prompts)
            off = np.abs(found - reference)
            others = int((found.argmax(axis=1) != reference.argmax(axis=1)).sum())
            sys.stdout.write(
                f"{name} {dtype}: largest {off.max():.2e}, mean {off.mean():.2e},"
                f" another label in {others} of {len(found)} rows\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
