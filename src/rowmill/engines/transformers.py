"""Prompts -> Outcomes, by transformers' own forward passes: every model it has, and the reference for correctness.

Promises: rows are computed side by side, padded on the left behind a mask, and leave as they finish; what a row is
answered does not depend on the rows beside it, beyond rounding; a row that cannot be computed fails alone.
With `batching = "paged"` the library batches them itself (transformers_paged.py).
Knows nothing of: how keys and values lie (transformers_cache.py), how tokens are drawn (transformers_draw.py).
Memory: the weights, and `batch_tokens` of keys and values, padding included. Threads: those of torch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import Field

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.heads import head_mistakes, head_of
from rowmill.engines.model_folder import (
    config_of,
    folder_mistakes,
    short_name,
    text_context,
)
from rowmill.engines.options import Options, check_version, mistakes, parse
from rowmill.engines.transformers_batch import PaddedBatch
from rowmill.engines.transformers_heads import ClassHead
from rowmill.engines.transformers_labels import LabelWeights
from rowmill.engines.transformers_numbers import Numbers
from rowmill.engines.transformers_paged import PagedTransformers
from rowmill.engines.transformers_pages import Pages, Pool, whole_pages
from rowmill.engines.transformers_run import Transformers
from rowmill.engines.weights import pickled_mistakes
from rowmill.rows import Limits
from rowmill.size.gpus import has_driver
from rowmill.tokens import open_tokenizer
from rowmill.tokens.labels import encode_labels

__all__ = ["EFFORT", "KINDS", "TransformersOptions", "check_options", "declare", "open"]

OLDEST = (5, 19)
_SEATS = 32
_BATCH_TOKENS = 32_768
_PROMPT_TOKENS = 2_048
_SAMPLING = (
    "top_k",
    "min_p",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logprobs",
    "ignore_eos",
    "return_token_ids",
    "seed_per_row",
)
_PAGED_SAMPLING = ("top_k", "n", "repetition_penalty", "ignore_eos", "return_token_ids")
"""What the library honours for each row. Of penalties it is 1 alone, which sets one of the model's aside."""
_HAS_KEYS = frozenset(("full_attention", "sliding_attention", "chunked_attention"))
_HAS_PAGES = frozenset(("full_attention", "sliding_attention"))
_FAILURES = (RuntimeError, ValueError, TypeError, OSError, ImportError, KeyError)
"""What the library raises for a model that it cannot load."""
_MOST_WORDS = 300

KINDS = frozenset(("chat", "generate", "classify", "score", "rerank"))
"""What it can be asked for."""
EFFORT = frozenset(("threads", "batching", "batch_tokens", "prompt_tokens", "device"))
"""Settings that change no answer beyond rounding: a run may be resumed with others. `batching` is one of them: a row
whose draw would be another one with pages, for it has a seed, gets no answer there at all."""


class TransformersOptions(Options):
    """Settings of engine `transformers`."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of weights and activations. `float32` is the reference; the others are quicker on a GPU, and round more."""
    device: str = ""
    """Where the model lies, as `cpu` or `cuda:0`. Empty: the first GPU that torch sees, else the processor."""
    threads: int | None = Field(default=None, gt=0)
    """Processor threads. None: the cores this process may use."""
    batching: Literal["padded", "paged"] = "padded"
    """How rows stand side by side: `padded` is the reference. `paged` is the library's own, for GPUs: no padding, and
    rows are drawn together; it honours less of `[sampling]`, and no `seed`."""
    batch_tokens: int = Field(default=_BATCH_TOKENS, gt=0)
    """Tokens of keys and values that rows hold side by side, padding included. A row longer than that runs alone;
    with `paged` it fails. Not said, `paged` on a GPU takes what is free of its memory."""
    prompt_tokens: int = Field(default=_PROMPT_TOKENS, gt=0)
    """Most prompt tokens computed at once, padding included. A longer prompt is computed alone; with `paged` in parts."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    load_format: Literal["safetensors", "pt"] = "safetensors"
    """`pt` reads pickled weights, which can run code as they are read."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each; torch is not needed."""
    found = mistakes(TransformersOptions, engine)
    found += folder_mistakes(engine)
    found += pickled_mistakes(engine)
    found += _batching_mistakes(engine) if not found else []
    return found + (
        list(head_mistakes(config_of(engine), engine))
        if not found and _has_head(engine)
        else []
    )


def declare(engine: EngineConfig) -> Limits:
    """What the model's config.json and the settings say, without loading anything.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: The hub does not give the model, or transformers has no padded batches for its kind.
    """
    found = check_options(engine)
    if found:
        raise errors.BadJob(where="engine `transformers`", mistakes=found)
    options = parse(TransformersOptions, engine)
    config = config_of(engine)
    head = head_of(config, engine) if _has_head(engine) else None
    is_paged = options.batching == "paged"
    if head is None:
        _check_kind(config, is_paged=is_paged)
    limits = Limits(
        takes="ids",
        max_model_tokens=engine.max_model_len or text_context(config),
        seats=engine.seats or _SEATS,
        step_tokens=options.prompt_tokens,
        kv_tokens=options.batch_tokens,
        starts_slowly=True,
        sampling=_SAMPLING if engine.is_asked_for_texts else (),
        pads=not engine.is_asked_for_texts,
        labels=head.labels if head else (),
        activation=head.activation if head else "",
        about=f"transformers: {short_name(engine.model)}",
    )
    return _of_pages(limits, engine, options, config) if is_paged else limits


def open(engine: EngineConfig) -> Transformers | PagedTransformers | Numbers:
    """Load the model.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: The library is older than this adapter knows, or cannot load the model.
        MissingExtra: The library is not installed.
    """
    limits, options = declare(engine), parse(TransformersOptions, engine)
    tokenizer: Any = open_tokenizer(engine)
    if tokenizer is None and not _has_head(engine):
        reason = "the model brings no tokenizer.json; set `engine.tokenizer`"
        raise errors.ConfigError(reason=reason)
    library, torch = _library()
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    device = options.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    model = _loaded(library, torch, engine, options).to(device)
    about = limits.about.replace("transformers", f"transformers {library.__version__}", 1)
    limits = msgspec.structs.replace(limits, about=about)
    if _has_head(engine):
        return Numbers(ClassHead(model), limits)
    generation = model.generation_config.to_dict()
    of_model = {
        "vocabulary": model.get_input_embeddings().weight.shape[0],
        "ends": _end_tokens(generation.get("eos_token_id")),
        "defaults": generation,
        "texts": tokenizer.answer_texts(),
    }
    if options.batching == "paged":
        measured = model.device.type != "cpu" and "batch_tokens" not in engine.options
        kv_tokens = 0 if measured else options.batch_tokens
        pages = Pages(model, Pool(limits.seats, options.prompt_tokens, kv_tokens))
        limits = _limits_of_open(limits, pages)
        return PagedTransformers(pages, limits=limits, **of_model)
    batch = PaddedBatch(model)
    if engine.classify is not None:
        labels = encode_labels(engine.classify, tokenizer)
        weights = LabelWeights(model, labels, held_tokens=options.batch_tokens)
        return Numbers(weights, limits)
    return Transformers(batch, limits=limits, **of_model)


def _has_head(engine: EngineConfig) -> bool:
    """Whether the model's own classes are asked for, not what it would say."""
    is_labels = engine.classify is not None and bool(engine.classify.names)
    return not engine.is_asked_for_texts and not is_labels


def _batching_mistakes(engine: EngineConfig) -> list[str]:
    """What `batching` cannot be together with."""
    options = parse(TransformersOptions, engine)
    if options.batching == "padded":
        return []
    found = []
    if not engine.is_asked_for_texts:
        found.append(
            '`engine.batching = "paged"` is for answers in words: numbers are made in one step;'
            ' set `engine.batching = "padded"`'
        )
    held = whole_pages(options.batch_tokens)
    if "batch_tokens" in engine.options and (engine.max_model_len or 0) > held:
        found.append(
            f"`engine.max_model_len` is {engine.max_model_len}, and `engine.batch_tokens` holds {held}: no row can be"
            " longer than what all hold; raise `engine.batch_tokens`"
        )
    return found


def _of_pages(
    limits: Limits, engine: EngineConfig, options: TransformersOptions, config: dict[str, Any]
) -> Limits:
    """Limits of paged batching. What free memory holds is known once it is open, and 0 before."""
    may_have_gpu = options.device != "cpu" and has_driver()
    is_measured = "batch_tokens" not in engine.options and may_have_gpu
    held = 0 if is_measured else whole_pages(options.batch_tokens)
    inner = config.get("text_config") or config
    kinds = set(inner.get("layer_types") or ("full_attention",))
    return msgspec.structs.replace(
        limits,
        max_model_tokens=min(limits.max_model_tokens, held or limits.max_model_tokens),
        kv_tokens=held,
        sampling=_PAGED_SAMPLING,
        shares_prefixes=kinds == {"full_attention"} and not inner.get("sliding_window"),
        about=f"{limits.about}, paged",
    )


def _limits_of_open(limits: Limits, pages: Pages) -> Limits:
    """What the open engine says of itself."""
    return msgspec.structs.replace(
        limits,
        max_model_tokens=min(limits.max_model_tokens, pages.kv_tokens),
        kv_tokens=pages.kv_tokens,
        shares_prefixes=pages.shares_beginnings,
    )


def _check_kind(config: dict[str, Any], *, is_paged: bool) -> None:
    """Refuse models whose rows cannot stand side by side as we lay them, or as the library does.

    Raises:
        ConfigError: It is one.
    """
    if config.get("is_encoder_decoder"):
        reason = f"`engine.model` is an encoder and a decoder ({config.get('model_type')}); give a decoder"
        raise errors.ConfigError(reason=reason)
    inner = config.get("text_config") or config
    kinds = set(inner.get("layer_types") or ())
    others = sorted(kinds - _HAS_KEYS)
    if is_paged and not others and kinds - _HAS_PAGES:
        reason = (
            f"`engine.model` has layers of kind `{min(kinds - _HAS_PAGES)}`, which the library keeps in no pages;"
            ' set `engine.batching = "padded"`'
        )
        raise errors.ConfigError(reason=reason)
    if others:
        reason = (
            f"`engine.model` has layers of kind `{others[0]}`, which keep no keys to pad;"
            " give a model of attention layers, or another engine"
        )
        raise errors.ConfigError(reason=reason)


def _library() -> tuple[Any, Any]:
    """Transformers and torch.

    Raises:
        MissingExtra: One is not installed.
        ConfigError: It is older than this adapter knows.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise errors.MissingExtra(what="`transformers`", extra="transformers") from error
    known, found = f"at least {'.'.join(map(str, OLDEST))}", transformers.__version__
    check_version("transformers", found, OLDEST, extra="transformers", expected=known)
    return transformers, torch


def _loaded(
    library: Any, torch: Any, engine: EngineConfig, options: TransformersOptions
) -> Any:
    """The model, ready to answer.

    Raises:
        ConfigError: The library cannot load it.
    """
    library.utils.logging.disable_progress_bar()
    path = Path(engine.model).expanduser()
    try:
        kind = "SequenceClassification" if _has_head(engine) else "CausalLM"
        model = getattr(library, f"AutoModelFor{kind}").from_pretrained(
            str(path) if path.exists() else engine.model,
            revision=engine.revision or "main",
            dtype=getattr(torch, options.dtype),
            trust_remote_code=options.trust_remote_code,
            use_safetensors=options.load_format == "safetensors",
        )
    except _FAILURES as error:
        words = " ".join(str(error).split())[:_MOST_WORDS]
        reason = f"transformers cannot load `{engine.model}`: {type(error).__name__}: {words}"
        raise errors.ConfigError(reason=reason) from error
    return model.eval()


def _end_tokens(found: Any) -> frozenset[int]:
    """Tokens that end an answer: one, several or none."""
    if found is None:
        return frozenset()
    return frozenset(found if isinstance(found, list | tuple) else [found])
