"""Engine `onnx`: vectors counted by hand from a table, the real encoder beside its reference, and the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rowmill.config import EngineConfig, Job
from rowmill.engines import onnx
from rowmill.engines.onnx_folder import find_file, read_folder
from rowmill.engines.padded import Waiting
from rowmill.errors import BadJob, ConfigError
from rowmill.kinds_config import EmbedConfig
from rowmill.rows import Outcome, Pair, Piece
from rowmill.stream import infer
from rowmill.testing import check_engine
from rowmill.tokens import open_tokenizer
from tests.engines.feeds import ListFeed
from tests.engines.onnx_models import minilm, table_model
from tests.engines.rows_of import byte_prompts

pytest.importorskip("onnxruntime")

TABLE = np.random.default_rng(7).normal(size=(261, 6)).astype(np.float32)
ROWS = byte_prompts(["one", "two", "three", "four and more", "e"], max_tokens=0)
SENTENCES = Path(__file__).parent.parent / "golden" / "minilm" / "sentences.json"


def engine(model: Path, embed: EmbedConfig | None = None, **options: Any) -> EngineConfig:
    return EngineConfig(
        name="onnx", model=str(model), embed=embed or EmbedConfig(pooling="mean"), **options
    )


def by_hand(ids: Any, pooling: str) -> Any:
    rows = TABLE[np.asarray(ids)]
    return {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[pooling]


def vector(outcome: Outcome) -> Any:
    assert isinstance(outcome.embedding, bytes), outcome
    return np.frombuffer(outcome.embedding, "<f4")


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("options", [{}, {"threads": 1, "step_tokens": 4}, {"seats": 2}])
def test_vectors_are_those_of_each_text_alone(
    tmp_path: Path, pooling: Any, options: dict[str, Any]
) -> None:
    model = table_model(tmp_path, TABLE)

    found = check_engine(
        onnx, engine(model, EmbedConfig(pooling=pooling), **options), rows=ROWS
    )

    for ids, outcome in zip(ROWS.row_ids(), found, strict=True):
        np.testing.assert_allclose(by_hand(ids, pooling), vector(outcome), rtol=1e-5, atol=1e-6)


def test_model_says_how_it_pools(tmp_path: Path) -> None:
    model = table_model(tmp_path, TABLE, pooling_mode_cls_token=True)

    found = check_engine(onnx, engine(model, EmbedConfig(normalise=True)), rows=ROWS)

    for ids, outcome in zip(ROWS.row_ids(), found, strict=True):
        wanted = by_hand(ids, "cls")
        np.testing.assert_allclose(
            wanted / np.linalg.norm(wanted), vector(outcome), rtol=1e-5, atol=1e-6
        )


def test_nobody_says_how_to_pool(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set `mean`, `cls` or `last`"):
        onnx.open(engine(table_model(tmp_path, TABLE), EmbedConfig()))


def test_a_text_the_model_fails_on_fails_alone(tmp_path: Path) -> None:
    rows = byte_prompts(["aaa", "bbb", "ccc", "ddd"], max_tokens=0)
    rows.ids = rows.ids.copy()
    rows.ids[4] = 100_000

    found = check_engine(onnx, engine(table_model(tmp_path, TABLE)), rows=rows)

    assert ["ok", "error", "ok", "ok"] == [outcome.status for outcome in found]
    assert "refused" == found[1].error_kind


def test_a_row_in_pieces_is_one_outcome(tmp_path: Path) -> None:
    pieces = [Piece(3, 0, 3), Piece(2, 3, 5)]
    rows = msgspec.structs.replace(ROWS, pieces={2: pieces})
    rows.stops = rows.stops.copy()

    found = check_engine(onnx, engine(table_model(tmp_path, TABLE)), rows=rows)[2]

    assert isinstance(found.chunks, list)
    assert [(0, 3), (3, 5)] == [(chunk.start, chunk.stop) for chunk in found.chunks]
    whole = list(ROWS.row_ids())[2]
    for ids, chunk in zip((whole[:3], whole[3:]), found.chunks, strict=True):
        got = np.frombuffer(chunk.embedding, "<f4")
        np.testing.assert_allclose(by_hand(ids, "mean"), got, rtol=1e-5, atol=1e-6)


def test_steps_hold_their_budget_and_the_oldest_text() -> None:
    waiting = Waiting(64)
    draw = np.random.default_rng(3)
    waiting.add(byte_prompts(["x" * n for n in draw.integers(1, 90, 200).tolist()]))
    seen: list[int] = []
    while waiting:
        step = waiting.step()
        longest = max(text.length for text in step)
        assert len(step) * longest <= 64 or len(step) == 1
        assert min({*range(200)} - set(seen)) in [text.number for text in step]
        seen += [text.number for text in step]

    assert list(range(200)) == sorted(seen)


def test_what_is_no_model_of_texts_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadJob, match=r"there is no `model\.onnx` in"):
        onnx.declare(engine(tmp_path))
    assert find_file(str(tmp_path), "") is None


def test_prefix_dimensions_and_length_through_the_whole_journey(tmp_path: Path) -> None:
    model = table_model(tmp_path, TABLE, pooling_mode_mean_tokens=True)
    job = Job.model_validate(
        {
            "kind": "embed",
            "engine": {"name": "onnx", "model": str(model)},
            "embed": {"prefix": "q: ", "dimensions": 4},
            "validate": {"too_long": "truncate_right"},
        }
    )
    texts = ["abc", "x" * 40, "", "é"]

    rows = list(infer(({"text": text} for text in texts), job))

    tokenizer = open_tokenizer(job.engine)
    assert tokenizer is not None
    for at, text in ((0, "q: abc"), (1, "q: " + "x" * 28), (3, "q: é")):
        wanted = by_hand(tokenizer.encode_batch([text], add_special=True)[0], "mean")[:4]
        wanted /= np.linalg.norm(wanted)
        np.testing.assert_allclose(wanted, rows[at]["rowmill_embedding"], rtol=1e-4, atol=1e-6)
    assert (44, "length") == (rows[1]["rowmill_cut_from"], rows[1]["rowmill_finish_reason"])
    assert ("invalid", None) == (rows[2]["rowmill_error_kind"], rows[2]["rowmill_embedding"])


@pytest.mark.slow
def test_real_encoder_keeps_the_contract_and_is_near_its_reference(tmp_path: Path) -> None:
    """Reference: sentence-transformers 6.2 in fp32; int8 differs by up to so much."""
    model = minilm(tmp_path / "minilm")
    told = json.loads(SENTENCES.read_text("utf-8"))
    settings = engine(model, EmbedConfig())
    tokenizer = open_tokenizer(settings)
    assert tokenizer is not None
    ids, stops = tokenizer.encode_batch(told["texts"], add_special=True)
    number = len(told["texts"])
    rows = msgspec.structs.replace(
        byte_prompts(["x"] * number, max_tokens=0), ids=ids, stops=stops
    )

    limits = onnx.declare(settings)
    found = check_engine(onnx, settings, rows=rows)

    assert (256, 384) == (limits.max_model_tokens, limits.dimensions)
    assert read_folder(model / "model.onnx").normalises
    for wanted, outcome in zip(told["vectors"], found, strict=True):
        reference = np.array(wanted)
        cosine = float(vector(outcome) @ reference / np.linalg.norm(reference))
        assert cosine > 0.99
        assert np.linalg.norm(vector(outcome)) == pytest.approx(1, abs=1e-5)


def test_share_of_filling_is_counted(tmp_path: Path) -> None:
    opened = onnx.open(engine(table_model(tmp_path, TABLE), threads=1))
    feed = ListFeed([byte_prompts(["x" * 10, "x" * 11, "x" * 30], max_tokens=0)])

    assert 3 == sum(map(len, opened.run(feed)))

    # Ten and eleven go together, 22 tokens of which one is filling; thirty would have more than a tenth.
    told = opened.counters()
    assert (2, pytest.approx(1 / 52)) == (told["steps"], told["filled_share"])


def summing_model(folder: Path, labels: list[str]) -> Path:
    """Sums a row of `TABLE` a token, and one of `KINDS` by its kind, where the mask says so."""
    from tests.engines.onnx_models import sum_model

    return sum_model(folder, TABLE[:, : len(labels)], KINDS[:, : len(labels)], labels)


KINDS = np.random.default_rng(8).normal(size=(2, 6)).astype(np.float32)


def test_a_head_counts_tokens_of_each_kind(tmp_path: Path) -> None:
    model = summing_model(tmp_path, ["only"])
    job = Job.model_validate(
        {"kind": "rerank", "engine": {"name": "onnx", "model": str(model)}}
    )
    rows = msgspec.structs.replace(ROWS, pairs={})
    for key, ids in zip(rows.keys, rows.row_ids(), strict=True):
        half = len(ids) // 2
        rows.pairs[key] = [Pair(len(ids) - half, 1), Pair(half, half)][: 1 + (half > 0)]

    found = check_engine(onnx, job.engine, rows=rows)

    for ids, outcome in zip(rows.row_ids(), found, strict=True):
        at = 0
        for pair, chunk in zip(rows.pairs[outcome.key], outcome.chunks or [], strict=True):
            part = ids[at : at + pair.tokens]
            kinds = (np.arange(pair.tokens) >= pair.second).astype(int)
            wanted = (TABLE[part, :1] + KINDS[kinds, :1]).sum(axis=0)
            np.testing.assert_allclose(
                wanted, np.frombuffer(chunk.embedding, "<f4"), rtol=1e-4, atol=1e-5
            )
            at += pair.tokens


def test_heads_are_looked_at_before_a_row_is_read(tmp_path: Path) -> None:
    model = summing_model(tmp_path, ["up", "down"])

    def mistakes(kind: str, **job: Any) -> str:
        said = {"kind": kind, "engine": {"name": "onnx", "model": str(model)}, **job}
        return " ".join(onnx.check_options(Job.model_validate(said).engine))

    assert mistakes("classify") == ""
    assert "gives 2 numbers a text" in mistakes("rerank")
    assert "weighed by a language model" in mistakes(
        "classify", classify={"labels": ("a", "b")}
    )
