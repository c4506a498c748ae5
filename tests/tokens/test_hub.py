"""A model named as on the hub: its small files are found where they were fetched to."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

from rowmill.config import EngineConfig
from rowmill.engines import vllm
from rowmill.errors import ConfigError
from rowmill.tokens import open_tokenizer
from rowmill.tokens.hub import is_hub_name
from tests.tokens.test_answers import byte_level


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds `owner/name` at `main`; no network."""
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"max_position_embeddings": 77}')
    byte_level().save(str(snapshot / "tokenizer.json"))
    refs = tmp_path / "models--owner--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("c0ffee")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.mark.usefixtures("cache")
def test_model_that_was_fetched_is_found_without_a_network() -> None:
    engine = EngineConfig(name="vllm", model="owner/name")
    tokenizer = open_tokenizer(engine)

    assert tokenizer is not None
    assert 77 == vllm.declare(engine).max_model_tokens
    assert "vLLM: owner/name" == vllm.declare(engine).about


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "engine",
    [
        EngineConfig(name="vllm", model="owner/other"),
        EngineConfig(name="vllm", model="owner/name", revision="v2"),
    ],
)
def test_model_that_was_not_is_a_mistake_with_a_way_out(engine: EngineConfig) -> None:
    with pytest.raises(ConfigError, match="hf download"):
        vllm.declare(engine)


@pytest.mark.parametrize(
    ("model", "is_name"),
    [
        ("Qwen/Qwen2.5-7B", True),
        ("/models/a", False),
        ("./a/b", False),
        ("a", False),
        ("a/b/c", False),
    ],
)
def test_names_are_told_from_paths(model: str, is_name: bool) -> None:
    assert is_name == is_hub_name(model)


def test_folder_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert not is_hub_name("owner/name")
