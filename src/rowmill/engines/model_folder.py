"""A model's folder, or its name on the hub -> what its config.json says, or what is wrong with it.

Promises: nothing is loaded; of a name on the hub only small files are fetched.
Knows nothing of: weights (weights.py), engines.
Memory: none kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.media.tokens import audio_tokens
from rowmill.tokens.hub import hub_folder, is_hub_name

_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_ALREADY_SCALED = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn")
_NO_CONTEXT = 2048
"""What vLLM takes where config.json does not say."""


def config_of(engine: EngineConfig) -> dict[str, Any]:
    """The model's config.json; empty where it has none.

    Raises:
        ConfigError: It is no JSON, or the hub does not give the model.
    """
    file = _folder(engine) / "config.json"
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        reason = f"`{file}` is no JSON: {error}"
        raise errors.ConfigError(reason=reason) from error
    return found if isinstance(found, dict) else {}


def audio_rate_of(engine: EngineConfig) -> int:
    """Samples a second of the audio that the model hears; 0 where its files do not say.

    Raises:
        ConfigError: The hub does not give the model.
    """
    return audio_tokens(str(_folder(engine))).rate


def _folder(engine: EngineConfig) -> Path:
    if is_hub_name(engine.model):
        return hub_folder(engine.model, engine.revision)
    return Path(engine.model).expanduser()


def folder_mistakes(engine: EngineConfig) -> Iterator[str]:
    """What is wrong with `engine.model` as a folder of Hugging Face's layout, a sentence each."""
    if engine.tokenizer == "bytes":
        yield "`engine.tokenizer`: a model brings a vocabulary of its own; leave it out"
    if not engine.model:
        yield "`engine.model` is missing: a folder with config.json, or a name on the Hugging Face hub; set it"
        return
    path = Path(engine.model).expanduser()
    if not (path / "config.json").is_file():
        if path.is_dir():
            yield f"`engine.model`: `{path}` holds no config.json; give the folder of a model"
        elif not is_hub_name(engine.model):
            yield f"`engine.model`: there is no folder `{path}`; give one, or a name on the Hugging Face hub"


def context_of(config: Mapping[str, Any]) -> int:
    """Most tokens of prompt and answer that a model's config.json allows, as vLLM derives it."""
    inner = config.get("text_config")
    told = {**config, **inner} if isinstance(inner, dict) else dict(config)
    lengths = [value for name in _LENGTHS if isinstance(value := told.get(name), int) and value]
    longest = told.get("model_max_length") or (min(lengths) if lengths else _NO_CONTEXT)
    rope = told.get("rope_parameters") or told.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "longrope" and told.get("original_max_position_embeddings"):
        return int(told["original_max_position_embeddings"])
    if kind in _ALREADY_SCALED or "gemma3" in str(told.get("model_type")):
        return int(longest)
    return int(longest * float(rope.get("factor") or 1.0))


def media_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What beside text a model takes, as far as its config.json says."""
    keys = {
        "vision_config": "image",
        "visual": "image",
        "audio_config": "audio",
        "audio_encoder_config": "audio",
    }
    if str(config.get("model_type")).startswith("granite_speech"):
        keys["encoder_config"] = "audio"
    inner = config.get("thinker_config")
    told = {**config, **inner} if isinstance(inner, dict) else config
    return tuple(dict.fromkeys(kind for key, kind in keys.items() if told.get(key)))


def text_context(config: Mapping[str, Any]) -> int:
    """Most tokens of a text: of models whose positions begin behind that of padding, some fewer."""
    longest = context_of(config)
    if str(config.get("model_type", "")).endswith("roberta"):
        longest -= int(config.get("pad_token_id") or 0) + 1
    return longest


def short_name(model: str) -> str:
    """What people call a model: the last part of its path, or its name on the hub."""
    return model if is_hub_name(model) else Path(model).name
