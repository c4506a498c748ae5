"""Workloads: shapes, exact counts, seeds."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from rowmill.bench.answers import lines_of
from rowmill.bench.words import Words
from rowmill.bench.workloads import SHAPES, write_workload
from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.executors.local import run
from tests.bench.tokenizers_of import word_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def words(folder: Path) -> Words:
    return Words(folder)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("bos", [False, True])
def test_every_prompt_has_exactly_the_tokens_that_are_told(
    tmp_path: Path, name: str, bos: bool
) -> None:
    place = word_tokenizer(tmp_path / "tokenizer", bos=bos)
    work = write_workload(name, tmp_path / "w.jsonl", words=Words(place), seed=3, rows=300)

    library = Tokenizer.from_file(str(place / "tokenizer.json"))
    rows = list(lines_of(Path(work.path)))
    encoded = library.encode_batch([row["prompt"] for row in rows])
    assert len(rows) == work.rows == 300
    assert sum(len(one.ids) for one in encoded) == work.prompt_tokens
    assert sum(row["max_tokens"] for row in rows) == work.output_tokens
    assert len({row["id"] for row in rows}) == 300
    assert all(row["ignore_eos"] is True for row in rows)


@pytest.mark.parametrize("name", SHAPES)
def test_one_seed_is_one_file_and_another_shares_no_prompt(
    tmp_path: Path, words: Words, name: str
) -> None:
    texts = []
    for number, seed in enumerate((1, 1, 2)):
        path = tmp_path / f"{number}.jsonl"
        write_workload(name, path, words=words, seed=seed, rows=100)
        texts.append(path.read_bytes())

    assert texts[0] == texts[1]
    starts = [
        {row["prompt"][:60] for row in lines_of(tmp_path / f"{number}.jsonl")}
        for number in (1, 2)
    ]
    assert not starts[0] & starts[1]


def test_prefixes_come_ten_times_each_and_shuffled(tmp_path: Path, words: Words) -> None:
    write_workload("prefixes", tmp_path / "w.jsonl", words=words, seed=1, rows=200)

    rows = list(lines_of(tmp_path / "w.jsonl"))
    begins = [" ".join(row["prompt"].split()[:1000]) for row in rows]
    assert sorted(Counter(begins).values()) == [10] * 20
    assert len(set(begins[:10])) > 3
    assert {len(row["prompt"].split()) for row in rows} == {1040}
    assert {row["max_tokens"] for row in rows} == {16}


def test_short_rows_are_short(tmp_path: Path, words: Words) -> None:
    write_workload("short", tmp_path / "w.jsonl", words=words, seed=1, rows=400)

    rows = list(lines_of(tmp_path / "w.jsonl"))
    assert {len(row["prompt"].split()) for row in rows} == {41}
    assert {row["max_tokens"] for row in rows} == {1, 2, 3, 4}


def test_mixed_rows_have_long_tails_about_their_means(tmp_path: Path, words: Words) -> None:
    write_workload("mixed", tmp_path / "w.jsonl", words=words, seed=1, rows=4000)

    rows = list(lines_of(tmp_path / "w.jsonl"))
    prompts = [len(row["prompt"].split()) for row in rows]
    answers = [row["max_tokens"] for row in rows]
    assert statistics.mean(prompts) == pytest.approx(244, rel=0.1)
    assert statistics.mean(answers) == pytest.approx(175, rel=0.1)
    assert statistics.median(prompts) < 180
    assert 2000 < max(prompts) <= 6000
    assert 1000 < max(answers) <= 1500


def test_system_rows_share_one_beginning(tmp_path: Path, words: Words) -> None:
    write_workload("system", tmp_path / "w.jsonl", words=words, seed=1, rows=300)

    rows = [row["prompt"].split() for row in lines_of(tmp_path / "w.jsonl")]
    assert len({" ".join(row[:200]) for row in rows}) == 1
    assert len({" ".join(row[200:]) for row in rows}) == 300


def test_rows_are_cut_to_the_context(tmp_path: Path, words: Words) -> None:
    write_workload("mixed", tmp_path / "w.jsonl", words=words, seed=1, rows=500, context=256)

    rows = list(lines_of(tmp_path / "w.jsonl"))
    assert max(len(row["prompt"].split()) + row["max_tokens"] for row in rows) == 256


def test_a_context_smaller_than_what_rows_share_is_refused(
    tmp_path: Path, words: Words
) -> None:
    with pytest.raises(ConfigError, match="takes 512 tokens and rows share 1000"):
        write_workload(
            "prefixes", tmp_path / "w.jsonl", words=words, seed=1, rows=20, context=512
        )


def test_rowmill_reads_a_workload_as_it_is(tmp_path: Path, folder: Path, words: Words) -> None:
    work = write_workload("short", tmp_path / "w.jsonl", words=words, seed=1, rows=50)
    job = Job.model_validate(
        {
            "source": work.path,
            "output": str(tmp_path / "out"),
            "raw": True,
            "engine": {"name": "echo", "tokenizer": str(folder)},
        }
    )

    summary = run(job)

    assert (summary.ok, summary.prompt_tokens) == (50, work.prompt_tokens)
    assert summary.output_tokens == work.output_tokens
