"""Labels weighed by a real small model: each engine beside the plain computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill.config import EngineConfig, Job
from rowmill.engines.verdicts import softmax
from rowmill.executors.opening import understand
from rowmill.rows import Outcome, Prompts, Request, Sampling
from rowmill.testing import check_engine
from rowmill.tokens import open_tokenizer
from rowmill.tokens.labels import Labels, encode_labels

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("transformers")

LABELS = ("positive", "negative", "no", "not sure", "not sure at all")
TEXTS = [
    "I love it",
    "awful, broke on day one",
    "meh",
    "The best thing I bought this year. " * 12,
    "caf\u00e9 \u4f60\u597d \U0001f389\U0001f389",
    "x",
]
NEAR = 1e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.hf_folders import smollm2_folder

    return smollm2_folder(tmp_path_factory.mktemp("models") / "smollm2")


def job_of(folder: Path, name: str, **options: Any) -> Job:
    return Job.model_validate(
        {
            "kind": "classify",
            "prompt": "Is this review positive or negative? {text}",
            "classify": {"labels": LABELS, "texts": {"no": "No"}},
            "engine": {"name": name, "model": str(folder), "max_model_len": 512, **options},
        }
    )


def asked(job: Job) -> tuple[EngineConfig, Prompts, Labels]:
    words = understand(job)
    requests = [
        Request(
            key=key,
            sampling=Sampling(temperature=0),
            messages=[{"role": "user", "content": job.prompt.format(text=text)}],
        )
        for key, text in enumerate(TEXTS)
    ]
    tokenizer = open_tokenizer(words.job.engine)
    assert tokenizer is not None
    prompts = words.measure.prompts(requests, lambda i, error: pytest.fail(str(error)))
    return words.job.engine, prompts, encode_labels(job.classify, tokenizer)


def shares(outcome: Outcome) -> Any:
    assert isinstance(outcome.embedding, bytes), outcome
    return softmax(np.frombuffer(outcome.embedding, "<f4").astype(np.float64))


def check(found: list[Outcome], prompts: Prompts, labels: Labels, folder: Path) -> float:
    """The largest difference to the plain computation."""
    from tests.engines.labels_plain import plain_model, plain_shares

    model = plain_model(folder)
    worst = 0.0
    for ids, outcome in zip(prompts.row_ids(), found, strict=True):
        plain = plain_shares(model, ids.tolist(), labels.ids)
        worst = max(worst, float(np.abs(plain - shares(outcome)).max()))
    return worst


@pytest.mark.parametrize(
    "options", [{}, {"prompt_tokens": 64}, {"batch_tokens": 300}, {"seats": 1}]
)
def test_transformers_weighs_as_the_plain_computation(
    folder: Path, options: dict[str, Any]
) -> None:
    from rowmill.engines import transformers

    engine, prompts, labels = asked(job_of(folder, "transformers", **options))

    found = check_engine(transformers, engine, rows=prompts)

    assert check(found, prompts, labels, folder) < NEAR


@pytest.mark.vllm
@pytest.mark.parametrize("caching", [True, False])
def test_vllm_weighs_as_the_plain_computation(folder: Path, *, caching: bool) -> None:
    pytest.importorskip("vllm")
    from rowmill.engines import vllm

    options = {
        "dtype": "float32",
        "enforce_eager": True,
        "cpu_kv_gib": 1,
        "enable_prefix_caching": caching,
    }
    engine, prompts, labels = asked(job_of(folder, "vllm", **options))

    found = check_engine(vllm, engine, rows=prompts)

    assert check(found, prompts, labels, folder) < NEAR
