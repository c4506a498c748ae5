"""The vLLM adapter without vLLM: settings, what a row is asked, what comes of its samples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rowmill import engines, errors
from rowmill.config import EngineConfig
from rowmill.engines import vllm
from rowmill.engines.model_folder import context_of, media_of
from rowmill.engines.prompt import row_seed
from rowmill.engines.vllm_arguments import ARGUMENTS
from rowmill.engines.vllm_ask import (
    Ended,
    Row,
    Sample,
    answered,
    logprob_entries,
    parameters,
    refused,
    text_ids,
)
from rowmill.engines.vllm_options import EFFORT, VllmOptions, checked, engine_arguments
from rowmill.engines.vllm_sockets import own_sockets
from rowmill.executors.identity import is_identity
from rowmill.rows import Limits, Outcome, Prompts, Sampling
from tests.engines.feeds import answers_of
from tests.engines.rows_of import byte_prompts


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"max_position_embeddings": 4096}')
    return str(folder)


def config(model: str, **options: Any) -> EngineConfig:
    return EngineConfig.model_validate({"name": "vllm", "model": model, **options})


def row(sampling: Sampling, *, key: int = 1, prompt: int = 3) -> Row:
    return Row(key, np.arange(prompt, dtype=np.uint32), 5, 5, sampling, 0.0)


def test_good_settings_pass_and_arguments_of_vllm_are_among_them(model: str) -> None:
    good = config(model, dtype="bfloat16", enforce_eager=True, block_size=32, seats=4)

    assert [] == vllm.check_options(good)
    assert {
        "dtype": "bfloat16",
        "enforce_eager": True,
        "block_size": 32,
        "max_num_seqs": 4,
        "model": model,
        "trust_remote_code": False,
    } == engine_arguments(good, checked(good))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"enforce_eagre": True}, "did you mean `enforce_eager`?"),
        ({"block_sise": 1}, "did you mean `block_size`?"),
        ({"max_num_seqs": 4}, "set `engine.seats`"),
        ({"hf_token": "x"}, "`HF_TOKEN`"),
        ({"data_parallel_size": 2}, "by itself"),
        ({"gpu_memory_utilization": 1.5}, "less than or equal to 1"),
        ({"front_end": "none"}, "`engine.front_end`"),
        ({"loras": {"a": "/no/such"}}, "`engine.loras.a`"),
        ({"tokenizer": "bytes"}, "a vocabulary of its own"),
        ({"model": ""}, "`engine.model` is missing"),
        ({"model": "/no/such/folder"}, "there is no folder `/no/such/folder`"),
    ],
)
def test_mistake_is_told_before_vllm_is_looked_for(
    model: str, options: dict[str, Any], words: str
) -> None:
    found = vllm.check_options(config(**{"model": model, **options}))

    assert 1 == len(found)
    assert words in found[0]
    assert "\n" not in found[0]
    with pytest.raises(errors.BadJob):
        vllm.declare(config(**{"model": model, **options}))


def test_name_on_the_hub_is_no_mistake() -> None:
    assert [] == vllm.check_options(config("Qwen/Qwen2.5-7B-Instruct"))


def test_folder_without_configuration_is_named(tmp_path: Path) -> None:
    assert "holds no config.json" in vllm.check_options(config(str(tmp_path)))[0]


def test_declared_limits_come_from_the_files_and_the_settings(model: str) -> None:
    own = vllm.declare(config(model))
    given_ = vllm.declare(config(model, seats=7, max_model_len=100))

    assert (4096, "vLLM: model", "ids") == (own.max_model_tokens, own.about, own.takes)
    assert own.seats in (256, 1024)
    assert (100, 7) == (given_.max_model_tokens, given_.seats)
    assert "lora" not in own.sampling
    assert {"n", "schema", "regex", "logprobs", "seed_per_row"} <= set(own.sampling)


@pytest.mark.parametrize(
    ("told", "media"),
    [
        ({"model_type": "qwen2"}, ()),
        ({"model_type": "qwen2_audio", "audio_config": {"a": 1}}, ("audio",)),
        (
            {"thinker_config": {"audio_config": {"a": 1}, "vision_config": {"a": 1}}},
            ("image", "audio"),
        ),
        ({"model_type": "midashenglm", "audio_encoder_config": {"a": 1}}, ("audio",)),
        ({"model_type": "granite_speech", "encoder_config": {"a": 1}}, ("audio",)),
        ({"model_type": "other", "encoder_config": {"a": 1}}, ()),
    ],
)
def test_what_a_model_sees_and_hears_stands_in_its_config(
    told: dict[str, Any], media: tuple[str, ...]
) -> None:
    assert media == media_of(told)


@pytest.mark.parametrize("file", ["preprocessor_config.json", "processor_config.json"])
def test_audio_is_declared_at_the_rate_that_the_model_s_files_say(
    tmp_path: Path, file: str
) -> None:
    told: dict[str, Any] = {"sampling_rate": 24_000}
    (tmp_path / "config.json").write_text('{"audio_config": {"a": 1}}')
    silent = vllm.declare(config(str(tmp_path)))
    (tmp_path / file).write_text(
        json.dumps(told if file.startswith("pre") else {"feature_extractor": told})
    )
    limits = vllm.declare(config(str(tmp_path)))

    assert ("audio",) == limits.media
    assert (0, 24_000) == (silent.audio_rate, limits.audio_rate)


def test_adapters_are_declared_with_their_rank(model: str, tmp_path: Path) -> None:
    for name, rank in (("a", 8), ("b", 20)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"r": rank}))
    loras = {name: str(tmp_path / name) for name in "ab"}
    both = config(model, loras=loras)
    named = engine_arguments(both, checked(both))

    assert (True, 2, 32) == (
        named["enable_lora"],
        named["max_loras"],
        named["max_lora_rank"],
    )
    assert "lora" in vllm.declare(both).sampling


def test_settings_that_change_answers_are_the_identity(model: str) -> None:
    engine = config(model)
    identity = ("dtype", "quantization", "kv_cache_dtype", "loras", "load_format", "revision")
    effort = ("seats", "tensor_parallel_size", "enforce_eager", "enable_prefix_caching")

    assert all(is_identity(engine, name) for name in identity)
    assert not any(is_identity(engine, name) for name in effort)


def test_every_effort_is_a_setting() -> None:
    assert set(VllmOptions.model_fields) | ARGUMENTS >= EFFORT


@pytest.mark.parametrize(
    ("told", "tokens"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"n_positions": 1024}, 1024),
        ({}, 2048),
        ({"text_config": {"max_position_embeddings": 300}}, 300),
        (
            {
                "max_position_embeddings": 100,
                "rope_scaling": {"type": "linear", "factor": 4.0},
            },
            400,
        ),
        (
            {
                "max_position_embeddings": 100,
                "rope_parameters": {"rope_type": "yarn", "factor": 4.0},
            },
            100,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope"},
            },
            4096,
        ),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
    ],
)
def test_context_is_what_vllm_derives(told: dict[str, Any], tokens: int) -> None:
    assert tokens == context_of(told)


def test_row_without_wishes_gets_the_model_s_own_defaults() -> None:
    defaults = {"temperature": 0.7, "top_k": 20, "max_tokens": 3}
    asked = parameters(Sampling(top_k=5), key=1, room=9, defaults=defaults)

    assert {"temperature": 0.7, "top_k": 5, "max_tokens": 9, "detokenize": False} == asked


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (Sampling(stop=("a",)), {"stop": ["a"], "detokenize": True}),
        (Sampling(logprobs=0), {"logprobs": 0, "detokenize": True}),
        (Sampling(n=3), {"n": 3}),
        (Sampling(choices=("a", "b")), {"structured_outputs": {"choice": ["a", "b"]}}),
        (Sampling(schema="{}"), {"structured_outputs": {"json": "{}"}}),
        (Sampling(regex="a"), {"structured_outputs": {"regex": "a"}}),
        (Sampling(ignore_eos=True, seed=4), {"ignore_eos": True, "seed": 4}),
    ],
)
def test_wishes_go_by_vllm_s_names(sampling: Sampling, named: dict[str, Any]) -> None:
    asked = parameters(sampling, key=1, room=9, defaults={})

    assert {"max_tokens": 9, "detokenize": False, **named} == asked


def test_greedy_samples_are_asked_for_once_and_repeated() -> None:
    sampling = Sampling(temperature=0, n=3)
    ended = Ended(row(sampling), [Sample([4, 5], "stop")], cached_tokens=2)
    outcome = answered(ended, {0: "x"})

    assert "n" not in parameters(sampling, key=1, room=9, defaults={})
    assert ["x"] * 3 == [choice.text for choice in outcome.choices]
    assert [0, 1, 2] == [choice.index for choice in outcome.choices]
    assert (6, 3, 2) == (outcome.output_tokens, outcome.prompt_tokens, outcome.cached_tokens)


def test_seed_of_a_row_changes_with_the_job_s() -> None:
    sampling = Sampling(seed_per_row=True, seed=3)

    assert row_seed(8, 3) == parameters(sampling, key=8, room=1, defaults={})["seed"]
    assert row_seed(8, 3) != row_seed(8, 4)


def test_token_that_ended_an_answer_is_none_of_its_text() -> None:
    assert [4] == text_ids(Sample([4, 5], "stop"))
    assert [4, 5] == text_ids(Sample([4, 5], "length"))


def test_whole_choice_has_not_been_cut() -> None:
    ended = Ended(row(Sampling(choices=("yes", "no"))), [Sample([4], "length")])

    assert "stop" == answered(ended, {0: "yes"}).finish_reason


def test_ids_are_kept_where_they_are_asked_for() -> None:
    ended = Ended(row(Sampling(return_token_ids=True)), [Sample([4, 5], "stop")])
    outcome = answered(ended, {0: "x"})

    assert [[4, 5]] == [choice.token_ids for choice in outcome.choices]
    assert ("x", "stop", 2) == (outcome.text, outcome.finish_reason, outcome.output_tokens)


def token(text: str, logprob: float, rank: int) -> SimpleNamespace:
    return SimpleNamespace(decoded_token=text, logprob=logprob, rank=rank)


def test_log_probabilities_have_the_chosen_token_first() -> None:
    position = {
        9: token("c", -5.0, 7),
        1: token("a", -0.1, 1),
        2: token("b", float("-inf"), 2),
    }

    assert [{"token": "c", "logprob": -5.0, "top": {"a": -0.1, "b": None}}] == logprob_entries(
        [position], 2
    )
    assert [{"token": "c", "logprob": -5.0, "top": {}}] == logprob_entries([position], 0)
    assert logprob_entries([position], None) is None


def test_refusal_is_one_line_of_bounded_length() -> None:
    words = str(refused(ValueError("a\nb " * 500)))

    assert words.startswith("vLLM: a b a b")
    assert len(words) < 220
    assert "\n" not in words


def test_module_needs_no_library_to_be_imported() -> None:
    code = "import sys, rowmill.engines.vllm; sys.exit(bool({'vllm', 'torch', 'huggingface_hub'} & set(sys.modules)))"
    source = str(Path(vllm.__file__).parents[2])

    assert (
        0 == subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}).returncode
    )


def test_missing_library_is_named_with_its_extra(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)

    with pytest.raises(errors.MissingExtra, match=r"rowmill\[vllm\]"):
        vllm._library()


def test_older_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.24.1"))

    with pytest.raises(errors.ConfigError, match=r"0\.25 to 0\.33"):
        vllm._library()


def test_adapter_is_found_by_its_name(model: str) -> None:
    assert 4096 == engines.declare(config(model)).max_model_tokens


class Failing:
    """Stands for vLLM: gives rows up, as often as their `max_tokens` says, or is dead."""

    class DeadError(Exception):
        """Stands for `EngineDeadError`."""

    dead = DeadError

    def __init__(self, *, is_dead: bool = False) -> None:
        self.rows: list[Row] = []
        self._is_dead = is_dead

    @property
    def is_idle(self) -> bool:
        return not self.rows

    def add(self, row: Row) -> None:
        if row.sampling.n > 1:
            raise errors.Refused(reason="no")
        self.rows.append(row)

    def step(self) -> list[Ended]:
        if self._is_dead:
            raise self.DeadError
        rows, self.rows = self.rows, []
        return [
            Ended(r, [Sample([3], "error" if r.attempts <= r.max_tokens - 1 else "stop")])
            for r in rows
        ]

    def close(self) -> None:
        pass


class Texts:
    """Stands for the vocabulary."""

    def texts(self, answers: list[list[int]]) -> list[str]:
        return [str(ids) for ids in answers]


def run(port: Any, prompts: Prompts) -> list[Outcome]:
    limits = Limits(max_model_tokens=20, seats=4)
    texts: Any = Texts()
    return answers_of(vllm.Vllm(port, limits=limits, vocabulary=256, texts=texts), prompts)


def test_row_that_vllm_gives_up_is_asked_once_more() -> None:
    prompts = byte_prompts(["a", "b", "c"])
    prompts.max_tokens = [1, 2, 3]
    outcomes = run(Failing(), prompts)

    assert [("ok", 1, None), ("ok", 2, None), ("error", 2, "transient")] == [
        (o.status, o.attempts, o.error_kind) for o in outcomes
    ]


def test_refused_rows_fail_alone() -> None:
    prompts = byte_prompts(
        ["a", "b", "c" * 30, "d"],
        max_tokens=1,
        sampling=[Sampling(), Sampling(n=2), Sampling(), Sampling()],
    )
    outcomes = run(Failing(), prompts)

    assert [None, "refused", "too_long", None] == [o.error_kind for o in outcomes]


def test_end_of_vllm_s_engine_is_the_end_of_this_one() -> None:
    with pytest.raises(errors.EngineDied, match="vLLM's engine ended"):
        run(Failing(is_dead=True), byte_prompts(["a"]))


def test_sockets_of_vllm_get_a_folder_of_their_own_unless_the_user_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM never removes them: a folder goes away whole, and what a killed one left goes with the next start."""
    name = "VLLM_RPC_BASE_PATH"
    monkeypatch.setenv(name, "mine")
    assert own_sockets() is None

    monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    folder = own_sockets()
    assert folder is not None
    assert (str(folder), True) == (os.environ[name], folder.is_dir())
    shutil.rmtree(folder)

    monkeypatch.delenv(name)
    long = tmp_path / ("x" * 64)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert own_sockets() is None
    assert name not in os.environ
    assert [] == list(long.iterdir())
