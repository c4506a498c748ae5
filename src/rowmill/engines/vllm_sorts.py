"""A job whose answers are numbers -> how vLLM is opened for it, and what is asked of it.

Promises: a model pools as the job says, else as its own files do; numbers of a head come as they are, before any
activation, so that all engines read them alike.
Knows nothing of: requests (vllm_numbers.py).
Source: `vllm/config/pooler.py` of 0.32.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.heads import head_mistakes, head_of
from rowmill.engines.model_folder import config_of
from rowmill.engines.onnx_folder import Folder, read_folder
from rowmill.engines.vllm_numbers import MOST_TOKENS_ASKED, Pooled, Sort, Weighed
from rowmill.rows import Limits
from rowmill.tokens.hub import hub_folder, is_hub_name
from rowmill.tokens.labels import encode_labels
from rowmill.tokens.protocol import Tokenizer

_WORDS = {"mean": "MEAN", "cls": "CLS", "last": "LAST"}


def is_pooled(engine: EngineConfig) -> bool:
    """Whether vLLM is opened with its runner `pooling`: for vectors, and for a model's own head."""
    return engine.embed is not None or _has_head(engine)


def _has_head(engine: EngineConfig) -> bool:
    weighs = engine.classify is not None and bool(engine.classify.names)
    return engine.score is not None or (engine.classify is not None and not weighs)


def head_mistakes_of(engine: EngineConfig) -> list[str]:
    """What keeps the model from classifying, or scoring pairs."""
    return list(head_mistakes(config_of(engine), engine)) if _has_head(engine) else []


def told_of_numbers(limits: Limits, engine: EngineConfig, config: Mapping[str, Any]) -> Limits:
    """The limits of a model whose answers are numbers."""
    pooled = is_pooled(engine)
    head = head_of(config, engine) if _has_head(engine) else None
    return msgspec.structs.replace(
        limits,
        sampling=(),
        media=(),
        # Texts are computed at once and leave no keys behind.
        kv_tokens=0 if pooled else limits.kv_tokens,
        shares_prefixes=limits.shares_prefixes and not pooled,
        dimensions=int(config.get("hidden_size") or 0) if engine.embed is not None else 0,
        labels=head.labels if head else (),
        activation=head.activation if head else "",
    )


def limits_of_numbers(limits: Limits, engine: EngineConfig, model: Any) -> Limits:
    """The same of an open engine; `model`: vLLM's ModelConfig."""
    if not is_pooled(engine):
        return limits
    length = getattr(model, "embedding_size", 0) or model.get_hidden_size()
    return msgspec.structs.replace(
        limits,
        kv_tokens=0,
        shares_prefixes=False,
        dimensions=int(length) if engine.embed is not None else 0,
    )


def with_runner(named: dict[str, Any], engine: EngineConfig) -> dict[str, Any]:
    """VLLM's engine arguments, with those that the kind of answers asks for.

    Raises:
        ConfigError: nobody says how the model pools.
    """
    if engine.is_asked_for_texts:
        return named
    if not is_pooled(engine):
        return {"max_logprobs": MOST_TOKENS_ASKED, **named}
    named = {"runner": "pooling", **named}
    if engine.embed is not None and "pooler_config" not in named:
        pooling = _folder(engine).pooling_for(engine.embed, has_pooled=False)
        assert pooling is not None
        named["pooler_config"] = {"pooling_type": _WORDS[pooling]}
    return named


def sort_of(engine: EngineConfig, tokenizer: Tokenizer | None) -> Sort:
    """What is asked of vLLM for each row.

    Raises:
        ConfigError: The installed vLLM cannot tell the log-probabilities of given tokens.
    """
    if engine.embed is not None:
        told = engine.embed.normalise
        does = _folder(engine).normalises if told is None else told
        return Pooled("embed", activates=bool(does))
    if _has_head(engine):
        return Pooled(
            "classify", has_types=int(config_of(engine).get("type_vocab_size") or 0) > 1
        )
    from vllm import SamplingParams

    if "logprob_token_ids" not in SamplingParams.__struct_fields__:
        reason = "the vLLM installed does not tell log-probabilities of given tokens, as labels need; install 0.32"
        raise errors.ConfigError(reason=reason)
    assert engine.classify is not None
    assert tokenizer is not None
    return Weighed(encode_labels(engine.classify, tokenizer))


def _folder(engine: EngineConfig) -> Folder:
    """What the model's files say of vectors."""
    folder = Path(engine.model).expanduser()
    if is_hub_name(engine.model):
        folder = hub_folder(engine.model, engine.revision)
    return read_folder(folder / "config.json")
