"""`check` says what a job will take, on GPUs that are not here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rowmill import errors, prospect
from rowmill.config import Job
from rowmill.rehearse import Report, check
from rowmill.size import Gpu
from rowmill.size.gpus import TABLE, gpu_named
from tests.engines.test_vllm_place import config_of

TINY = Path(__file__).parent / "golden" / "tiny_tokenizer"


@pytest.fixture(autouse=True)
def _no_gpu_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prospect, "gpus_here", tuple)


def model(folder: Path, name: str) -> Path:
    shutil.copytree(TINY, folder)
    (folder / "config.json").write_text(
        json.dumps({**config_of(name), "max_position_embeddings": 4096})
    )
    return folder


def checked(
    tmp_path: Path,
    texts: list[str],
    name: str = "1.5b",
    *,
    more: dict[str, Any] | None = None,
    **settings: Any,
) -> Report:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    engine = {"name": "vllm", "model": str(model(tmp_path / "model", name)), **(more or {})}
    sampling = {"temperature": 0, "max_tokens": 8}
    job = {"source": str(source), "engine": engine, "raw": True, "sampling": sampling}
    return check(Job.model_validate({**job, **settings}))


def grouped(groups: int, each: int) -> list[str]:
    texts = [f"{g:03d} {'shared words ' * 30} {i}" for g in range(groups) for i in range(each)]
    return [texts[i * 7919 % len(texts)] for i in range(len(texts))]


def test_a_gpu_that_is_named_is_told_in_full(tmp_path: Path) -> None:
    report = checked(
        tmp_path, grouped(40, 10), plan={"gpu": "2 x h100"}, run={"gpu_hour_price": 4.0}
    )

    (found,) = report.forecasts
    assert (found.fit.gpu, found.gpus) == ("H100", 2)
    assert found.low_s < found.seconds < found.high_s
    assert found.bounds.ideal_s < found.seconds
    assert 0.5 < found.hit_rate <= found.bounds.hit_rate
    assert found.price == pytest.approx(4.0 * found.gpu_hours)
    words = "\n".join(report.lines())
    assert "on 2 x H100" in words
    assert "no schedule takes less than" in words
    assert "28,672 bytes a token" in words


def test_grouping_pays_where_engines_have_caches_of_their_own(tmp_path: Path) -> None:
    report = checked(tmp_path, grouped(40, 10), plan={"gpu": "H200"})

    (found,) = report.forecasts
    assert found.fit.replicas == 2
    assert found.hit_rate > found.file_hit_rate
    assert found.seconds < found.file_seconds
    assert any(lever.name == "prefixes" and lever.is_used for lever in report.levers)


def test_rows_that_share_nothing_are_told_that_there_is_no_gain(tmp_path: Path) -> None:
    texts = [f"{i * 7919} is a number" for i in range(300)]
    report = checked(tmp_path, texts, "7b", plan={"gpu": "H200"})

    words = "\n".join(report.lines())
    assert "no gain here: the order of the input takes as long" in words
    assert report.forecasts[0].bounds.hit_rate < 0.02


def test_without_a_gpu_one_of_each_kind_is_told(tmp_path: Path) -> None:
    report = checked(tmp_path, [f"{i} texts" for i in range(50)], "7b")

    assert [one.fit.gpu for one in report.forecasts] == list(TABLE)
    assert report.forecasts[0].fit.parallel == 2  # 15 GB of weights and a T4
    seconds = {one.fit.gpu: one.seconds for one in report.forecasts}
    assert seconds["B200"] < seconds["H100"] < seconds["L4"]
    assert sum("GPU hours" in line for line in report.lines()) == len(TABLE)


def test_a_model_that_fits_nowhere_is_told_so(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", "7b")
    huge = {**config_of("7b"), "num_hidden_layers": 900, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(huge))
    source = tmp_path / "rows.jsonl"
    source.write_text('{"prompt": "one"}\n')
    job = {"source": str(source), "raw": True, "plan": {"gpu": "T4"}}
    report = check(
        Job.model_validate({**job, "engine": {"name": "vllm", "model": str(folder)}})
    )

    assert report.forecasts[0].fit.parallel == 0
    assert "does not fit on T4" in "\n".join(report.lines())


def test_an_engine_without_gpus_has_no_forecast(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"prompt": "one"}\n')
    report = check(Job.model_validate({"source": str(source), "engine": {"name": "echo"}}))

    assert report.forecasts == []


@pytest.mark.parametrize("text", ["H999", "0xH200", "", "2x"])
def test_a_gpu_nobody_knows_is_refused_with_those_known(text: str) -> None:
    with pytest.raises(errors.UnknownName, match="B200"):
        prospect.named_place(text)


def test_gpus_here_are_forecast_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = gpu_named("A100-80")
    assert here is not None
    monkeypatch.setattr(prospect, "gpus_here", lambda: (here, here))

    places = prospect.places_of(
        Job.model_validate({"source": "x", "engine": {"name": "vllm", "model": "m"}})
    )
    assert places == [prospect.Place(here, 2, is_here=True)]
    assert isinstance(places[0].gpu, Gpu)


def test_settings_that_cost_time_are_told_with_what_they_cost(tmp_path: Path) -> None:
    texts = [f"{i * 7919} is a number" for i in range(3000)]
    engine = {"seats": 8, "max_num_batched_tokens": 512, "max_model_len": 4096}
    report = checked(tmp_path, texts, "7b", plan={"gpu": "H200"}, more=engine)

    told = "\n".join(report.advice)
    assert "`engine.seats = 8` makes it" in told
    assert "no row takes more than" in told
    assert "advice" in "\n".join(report.lines())


def test_settings_that_cost_nothing_are_not_told(tmp_path: Path) -> None:
    texts = [f"{i * 7919} is a number" for i in range(300)]
    report = checked(tmp_path, texts, "7b", plan={"gpu": "H200"}, more={"seats": 1024})

    assert report.advice == []


def test_a_cache_that_is_given_is_what_is_forecast_with(tmp_path: Path) -> None:
    more = {"replicas": 3, "kv_cache_memory_bytes": 28_672 * 96_000}
    report = checked(tmp_path, grouped(40, 10), plan={"gpu": "H200"}, more=more)

    (found,) = report.forecasts
    assert (found.fit.replicas, found.fit.pool_tokens) == (3, 32_000)
    assert "as given" in found.fit.reasons["replicas"]


def test_an_engine_that_calls_a_setting_otherwise_is_forecast_with_it(tmp_path: Path) -> None:
    texts = [f"{i * 7919} is a number" for i in range(300)]
    plan = {"gpu": "4xH200"}

    def found(name: str, engine: dict[str, Any]) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        (one,) = checked(folder, texts, "7b", plan=plan, more=engine).forecasts
        return one

    vllm = {"tensor_parallel_size": 2, "max_num_batched_tokens": 4096, "seats": 256}
    sglang = {"name": "sglang", "tp_size": 2, "chunked_prefill_size": 4096, "seats": 256}
    theirs, ours = found("vllm", vllm), found("sglang", sglang)

    assert 2 == ours.fit.parallel
    assert theirs.fit.parallel == ours.fit.parallel
    assert theirs.seconds == pytest.approx(ours.seconds, rel=0.01)
    assert "as given" in ours.fit.reasons["step tokens"]


def test_beginnings_that_fit_by_their_characters_alone_are_told_to_be_put_together(
    tmp_path: Path,
) -> None:
    """The tiny tokenizer has a token a character, where the plan takes four: so do scripts other than Latin."""
    heads = [f"{g:03d} {'shared words ' * 200}" for g in range(20)]
    texts = [f"{heads[i * 7 % 20]} {i} of its own" for i in range(400)]
    more = {"num_gpu_blocks_override": 2000, "seats": 8}
    report = checked(tmp_path, texts, more=more, plan={"gpu": "L4"})
    prefixes = next(lever for lever in report.levers if lever.name == "prefixes")

    assert prefixes.fits
    assert any('plan.order = "prefix"' in text for text in report.advice)


def test_answers_without_a_limit_are_told_of(tmp_path: Path) -> None:
    report = checked(tmp_path, ["a word"] * 3, sampling={"temperature": 0}, plan={"gpu": "L4"})

    assert any("`sampling.max_tokens` is not given" in text for text in report.advice)
