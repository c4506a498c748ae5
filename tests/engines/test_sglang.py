"""A row as SGLang is asked for it, its answers as outcomes, its settings. The library is not needed; the last test has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import sglang, sglang_options
from rowmill.engines.sglang_ask import Row, answer_of, answered, parameters
from rowmill.engines.sglang_options import checked, engine_arguments, fields_of
from rowmill.rows import Limits, Sampling
from rowmill.size import Gpu
from rowmill.testing import check_deaths, check_engine
from tests.engines.rows_of import byte_prompts

ABOUT: dict[str, object] = {
    "id": "r1",
    "finish_reason": {"type": "length", "length": 2},
    "prompt_tokens": 5,
    "weight_version": "default",
    "num_retractions": 0,
    "reasoning_tokens": 0,
    "completion_tokens": 2,
    "cached_tokens": 3,
    "cached_tokens_details": None,
    "dp_rank": None,
    "e2e_latency": 0.19,
}
"""`meta_info` of an answer as SGLang 0.5.21 gave it."""
FOUND: dict[str, object] = {"text": "-in", "output_ids": [29, 254], "meta_info": ABOUT}


def row(sampling: Sampling, *, key: int = 7, room: int = 16) -> Row:
    return Row(key, np.arange(5, dtype=np.uint32), room, room, sampling, 0.0)


def folder(into: Path, **more: Any) -> str:
    told = {"max_position_embeddings": 4096, "model_type": "qwen2", **more}
    (into / "config.json").write_text(json.dumps(told))
    return str(into)


def test_a_row_is_asked_by_sglangs_names() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=0, stop=("a", "b"), ignore_eos=True)

    assert {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_new_tokens": 16,
        "ignore_eos": True,
        "stop": ["a", "b"],
        "stream_interval": 16,
    } == parameters(row(sampling), sample=0)


def test_constraints_are_one_of_sglangs_three() -> None:
    choices = Sampling(choices=("yes", "not sure (50%)", "a|b"))
    schema = Sampling(schema='{"type": "object"}')

    assert r"(yes)|(not sure \(50%\))|(a\|b)" == parameters(row(choices), sample=0)["regex"]
    assert '{"type": "object"}' == parameters(row(schema), sample=0)["json_schema"]
    assert "[0-9]+" == parameters(row(Sampling(regex="[0-9]+")), sample=0)["regex"]


def test_samples_of_a_row_have_seeds_of_their_own() -> None:
    several = row(Sampling(temperature=1.0, n=3))
    seeds = {parameters(several, sample=i)["sampling_seed"] for i in range(3)}
    own = Sampling(temperature=1.0, seed=5, seed_per_row=True)
    of_rows = {parameters(row(own, key=key), sample=0)["sampling_seed"] for key in range(50)}

    assert 3 == len(seeds)
    assert 50 == len(of_rows)
    assert all(0 <= seed < 2**31 for seed in seeds | of_rows)
    assert 5 == parameters(row(Sampling(seed=5)), sample=0)["sampling_seed"]
    assert "sampling_seed" not in parameters(row(Sampling()), sample=0)


def test_an_answer_becomes_an_outcome() -> None:
    sampling = Sampling(temperature=0, n=2, return_token_ids=True)
    outcome = answered(row(sampling), [answer_of(FOUND, sampling)])

    assert ("ok", "-in", "length") == (outcome.status, outcome.text, outcome.finish_reason)
    assert (5, 3, 4) == (outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens)
    assert [(0, [29, 254]), (1, [29, 254])] == [(c.index, c.token_ids) for c in outcome.choices]


def test_a_choice_that_stands_whole_is_no_cut_answer() -> None:
    sampling = Sampling(choices=("-in", "other"))

    assert "stop" == answered(row(sampling), [answer_of(FOUND, sampling)]).finish_reason


def test_log_probabilities_name_the_chosen_token_and_the_best() -> None:
    about = {
        **ABOUT,
        "output_token_logprobs": [(-0.5, 29, "-"), (-1.5, 254, "in")],
        "output_top_logprobs": [[(-0.5, 29, "-"), (-2.0, 3, "x")], None],
    }
    sampling = Sampling(logprobs=1)

    assert [
        {"token": "-", "logprob": -0.5, "top": {"-": -0.5}},
        {"token": "in", "logprob": -1.5, "top": {}},
    ] == answer_of({**FOUND, "meta_info": about}, sampling).logprobs


@pytest.mark.parametrize(
    ("status", "expected"), [(400, errors.Refused), (503, errors.GaveUp), (None, errors.GaveUp)]
)
def test_an_aborted_row_is_refused_or_given_up(
    status: int | None, expected: type[errors.RowError]
) -> None:
    reason = {"type": "abort", "message": "Failed to\ncompile", "status_code": status}
    found = {**FOUND, "meta_info": {**ABOUT, "finish_reason": reason}}

    with pytest.raises(expected, match="Failed to compile"):
        answer_of(found, Sampling())


def test_settings_go_by_sglangs_names(tmp_path: Path) -> None:
    model = folder(tmp_path)
    engine = EngineConfig(
        name="sglang", model=model, max_model_len=1000, seats=64, load_format="dummy", tp_size=2
    )

    assert {
        "model_path": model,
        "context_length": 1006,
        "max_running_requests": 64,
        "load_format": "dummy",
        "tp_size": 2,
        "dtype": "auto",
        "trust_remote_code": False,
        "enable_deterministic_inference": False,
        "enable_cache_report": True,
    } == engine_arguments(engine, checked(engine))


def test_a_row_fits_beside_what_sglang_keeps_of_the_context(tmp_path: Path) -> None:
    engine = EngineConfig(name="sglang", model=folder(tmp_path))
    whole = EngineConfig(name="sglang", model=engine.model, max_model_len=4096)

    assert 4090 == sglang.declare(engine).max_model_tokens
    assert 4090 == sglang.declare(whole).max_model_tokens
    assert 4096 == engine_arguments(whole, checked(whole))["context_length"]


def test_seeds_are_drawn_by_only_where_inference_is_deterministic(tmp_path: Path) -> None:
    model = folder(tmp_path)
    plain = EngineConfig(name="sglang", model=model)
    exact = EngineConfig(name="sglang", model=model, enable_deterministic_inference=True)

    assert "seed_per_row" not in sglang.declare(plain).sampling
    assert "seed_per_row" in sglang.declare(exact).sampling


def test_settings_that_rowmill_does_itself_are_named(tmp_path: Path) -> None:
    engine = EngineConfig(name="sglang", model=folder(tmp_path), dp_size=2, stream_interval=4)
    found = sglang.check_options(engine)

    assert 2 == len(found)
    assert "engine.dp_size" in found[0] + found[1]
    assert "answers come whole" in found[0] + found[1]


def test_an_unknown_setting_names_its_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "server_args.py"
    source.write_text(
        "class Other:\n    no: int = 1\nclass ServerArgs:\n    page_size: int = 1\n    x = 2\n"
    )
    monkeypatch.setattr(
        sglang_options, "arguments", lambda: frozenset(fields_of(source, of="ServerArgs"))
    )
    engine = EngineConfig(name="sglang", model=folder(tmp_path), page_sise=4)

    assert ["page_size"] == list(fields_of(source, of="ServerArgs"))
    (found,) = sglang.check_options(engine)
    assert "did you mean `page_size`" in found


def test_each_group_of_gpus_has_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang, "gpus_seen", lambda _: [Gpu(i, "H200", 1) for i in range(5)])
    model = folder(tmp_path)
    wide = EngineConfig(name="sglang", model=model, tp_size=2)

    def seen(engine: EngineConfig) -> list[str]:
        return [
            one.environment["CUDA_VISIBLE_DEVICES"] for one in sglang.place(engine).replicas
        ]

    assert ["0", "1", "2", "3", "4"] == seen(EngineConfig(name="sglang", model=model))
    assert ["0,1", "2,3"] == seen(wide)
    with pytest.raises(errors.ConfigError, match="8, and this process may use 5"):
        sglang.place(EngineConfig(name="sglang", model=model, tp_size=8))


def test_what_the_open_engine_says_bounds_a_row() -> None:
    told = {
        "max_total_num_tokens": 4096,
        "max_req_input_len": 506,
        "page_size": 1,
        "internal_states": [{"effective_max_running_requests_per_dp": 8}],
    }
    declared = Limits(max_model_tokens=506, seats=1024, replicas=2)
    limits = sglang._limits(declared, told, seats=None)
    small = sglang._limits(declared, {**told, "max_total_num_tokens": 300}, seats=None)

    assert (506, 8, 4096, 1) == (
        limits.max_model_tokens,
        limits.seats,
        limits.kv_tokens,
        limits.replicas,
    )
    assert 296 == small.max_model_tokens


def test_without_the_library_the_pip_line_is_named(tmp_path: Path) -> None:
    if sglang_options.arguments():
        pytest.skip("SGLang is installed")
    with pytest.raises(errors.MissingExtra, match=r"rowmill\[sglang\]"):
        sglang.open(EngineConfig(name="sglang", model=folder(tmp_path)))


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_sglang_keeps_the_contract(tmp_path: Path) -> None:
    pytest.importorskip("sglang")
    from tests.engines.hf_folders import smollm2_folder

    engine = EngineConfig(
        name="sglang",
        model=str(smollm2_folder(tmp_path / "smollm2")),
        max_model_len=512,
        max_total_tokens=8192,
        attention_backend="triton",
        sampling_backend="pytorch",
    )
    rows = byte_prompts(["aa bb " * 20, "aa bb " * 19 + "cc", "dd", "ee ff"], max_tokens=4)

    assert 4 == len(check_engine(sglang, engine, rows=rows, agree=0.5))
    check_deaths(engine, rows=rows, log=tmp_path / "log")
