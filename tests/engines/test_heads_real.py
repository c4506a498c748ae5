"""Models with heads, and models for vectors, by engines transformers and vllm, beside the library's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rowmill import engines
from rowmill.config import Job
from rowmill.engines.judging import judge_of
from rowmill.engines.verdicts import sigmoid, softmax
from rowmill.executors.opening import understand
from rowmill.rows import Row
from tests.engines.feeds import answers_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXTS = [
    "a good thing",
    "bad",
    "it is what it is, and that is all there is to say of it",
    "e e e",
    "[SEP] is text",
    "x" * 60,
]
QUERY = "what is a mill?"
NEAR = 1e-4
LABELS = ("up", "down", "level")
VLLM = {"dtype": "float32", "enforce_eager": True, "cpu_kv_gib": 1}
ENGINES = [
    pytest.param({"name": "transformers"}, id="transformers"),
    pytest.param({"name": "transformers", "prompt_tokens": 8}, id="one by one"),
    pytest.param({"name": "vllm", **VLLM}, id="vllm", marks=pytest.mark.vllm),
]
Make = Callable[[str, Sequence[str]], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    from tests.engines import head_models

    def made(shape: str, labels: Sequence[str]) -> Path:
        folder: Path = getattr(head_models, f"{shape}_folder")(tmp_path / shape, labels)
        return folder

    return made


def job_of(kind: str, folder: Path, engine: dict[str, Any], **more: Any) -> Job:
    if engine["name"] == "vllm":
        pytest.importorskip("vllm")
    return Job.model_validate(
        {"kind": kind, "engine": {"model": str(folder), **engine}, **more}
    )


def answers(job: Job, rows: Sequence[dict[str, Any]]) -> list[Any]:
    """What a job makes of rows, in this process: as its stations and its engine's child do."""
    words = understand(job)
    requests = [
        words.recipe.request(Row(key, msgspec.json.encode(row))) for key, row in enumerate(rows)
    ]
    prompts = words.measure.prompts(requests, lambda _, error: pytest.fail(str(error)))
    engine = words.job.engine
    opened = engines.open_engine(engine)
    judge = judge_of(engine, opened.limits)
    return judge.judged(answers_of(opened, prompts.slice(0, 1), prompts.slice(1, len(prompts))))


def logits(folder: Path, *texts: Any) -> Any:
    """One text, or one pair, at a time: nothing is padded."""
    import torch
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        str(folder), dtype=torch.float32
    ).eval()
    found = []
    for text in texts:
        pair = text if isinstance(text, tuple) else (text,)
        # A control token in a text is text, as in a job.
        ids = tokenizer(
            *pair,
            return_tensors="pt",
            split_special_tokens=True,
            return_token_type_ids=model.config.model_type == "bert",
        )
        with torch.inference_mode():
            found.append(model(**ids).logits[0].numpy())
    return np.array(found, np.float64)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", ["bert", "roberta", "qwen"])
def test_classes_of_a_head(make: Make, shape: str, engine: dict[str, Any]) -> None:
    folder = make(shape, LABELS)

    found = answers(job_of("classify", folder, engine), [{"text": text} for text in TEXTS])

    for row, numbers in zip(found, logits(folder, *TEXTS), strict=True):
        shares = softmax(numbers)
        assert list(row.probabilities) == list(LABELS), row
        np.testing.assert_allclose(shares, list(row.probabilities.values()), atol=NEAR)
        assert row.label == LABELS[int(shares.argmax())]
        assert row.probability == max(row.probabilities.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", ["bert", "roberta", "qwen"])
def test_documents_are_scored_and_ranked(
    make: Make, shape: str, engine: dict[str, Any]
) -> None:
    folder = make(shape, ("LABEL_0",))
    rows = [{"query": QUERY, "documents": TEXTS}, {"query": "bad", "documents": TEXTS[:1]}]

    job = job_of("rerank", folder, engine, score={"top_n": 3})
    found = answers(job, rows)

    wanted = sigmoid(logits(folder, *((QUERY, text) for text in TEXTS))[:, 0])
    np.testing.assert_allclose(wanted, found[0].scores, atol=NEAR)
    assert found[0].ranking == np.argsort(-wanted, kind="stable")[:3].tolist()
    assert found[1].ranking == [0]


@pytest.mark.parametrize("engine", ENGINES[:1])
def test_a_pair_is_scored(make: Make, engine: dict[str, Any]) -> None:
    folder = make("bert", ("LABEL_0",))
    rows = [{"query": QUERY, "document": text} for text in TEXTS]

    job = job_of("score", folder, engine, score={"activation": "none"})
    found = [row.score for row in answers(job, rows)]

    wanted = logits(folder, *((QUERY, text) for text in TEXTS))[:, 0]
    np.testing.assert_allclose(wanted, found, atol=NEAR)


@pytest.mark.vllm
@pytest.mark.parametrize("shape", ["bert", "qwen"])
def test_vectors_by_vllm(make: Make, shape: str) -> None:
    folder = make(shape, ())
    job = job_of("embed", folder, {"name": "vllm", **VLLM}, embed={"normalise": True})
    # One that is too long is in chunks; the vector of each is that of its own text.
    long = "never say never again. " * 20
    chunked = job.model_copy(
        update={"validate_": job.validate_.model_copy(update={"too_long": "chunk"})}
    )

    found = answers(chunked, [{"text": text} for text in (*TEXTS, long)])

    for row, text in zip(found, TEXTS, strict=False):
        np.testing.assert_allclose(
            plain_vector(folder, text),
            np.frombuffer(row.embedding, "<f4"),
            atol=NEAR,
            err_msg=text,
        )
    chunks = found[-1].chunks
    assert len(chunks) > 2
    for chunk in chunks:
        text = long[chunk.start : chunk.stop]
        np.testing.assert_allclose(
            plain_vector(folder, text), np.frombuffer(chunk.embedding, "<f4"), atol=NEAR
        )


def plain_vector(folder: Path, text: str) -> Any:
    """By transformers: one text at a time."""
    import torch
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    model = transformers.AutoModel.from_pretrained(str(folder), dtype=torch.float32).eval()
    ids = tokenizer(text, return_tensors="pt", split_special_tokens=True)
    with torch.inference_mode():
        given = {name: ids[name] for name in ("input_ids", "attention_mask")}
        hidden = model(**given).last_hidden_state[0]
    vector = hidden[-1] if model.config.model_type == "qwen2" else hidden.mean(dim=0)
    return (vector / vector.norm()).numpy()


def test_a_language_model_has_no_head(tmp_path: Path) -> None:
    from tests.engines.hf_folders import random_folder

    job = job_of("classify", random_folder(tmp_path / "llama"), {"name": "transformers"})

    assert engines.check_options(job.engine) == [
        "`engine.model` is a `LlamaForCausalLM`, which has no head for classes;"
        " for a language model give `classify.labels`"
    ]
