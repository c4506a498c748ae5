"""Vocabulary in a .gguf file -> Tokenizer: the ids that llama.cpp itself would make.

Promises: only kinds whose ids were compared with llama.cpp's are opened (see tests/tokens); others are refused.
Knows nothing of: tensors.
Memory: the vocabulary. It is built anew at each start: that takes 0.3 s for 49,000 tokens,
no more than reading a stored tokenizer.json of it would (measured), so nothing is cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import PreTokenizer

from rowmill.errors import ConfigError
from rowmill.tokens.gguf_file import read_metadata
from rowmill.tokens.hugging_face import JsonTokenizer, control_token

_CONTROL, _USER_DEFINED = 3, 4


class _Kind(msgspec.Struct, frozen=True):
    """How one kind of pre-tokenizer cuts text, and what else its name implies in llama.cpp."""

    splits: tuple[str, ...] = ()
    """Regular expressions; empty: GPT-2's own."""
    ignores_merges: bool = False
    """A piece that is a token as a whole is that token, whatever the merges say."""
    adds_bos: bool = False
    """Unless the file says otherwise."""
    splits_digits: bool = False


_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _Kind(splits=(_WORDS.format(digits=""),))
_LLAMA3 = _Kind(splits=(_WORDS.format(digits="{1,3}"),), ignores_merges=True, adds_bos=True)
_KINDS: Mapping[str, _Kind] = {
    "deepseek-r1-qwen": _QWEN2,
    "gpt-2": _Kind(),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "smollm": _Kind(splits_digits=True),
}


def _splitter(kind: _Kind) -> PreTokenizer:
    steps: list[PreTokenizer] = [
        pre_tokenizers.Split(Regex(split), behavior="isolated") for split in kind.splits
    ]
    if kind.splits_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    by_words = not kind.splits
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=by_words))
    return pre_tokenizers.Sequence(steps)


def open_gguf(path: Path) -> JsonTokenizer:
    """The tokenizer that lies inside a model file.

    Raises:
        ConfigError: the file cannot be read, or its vocabulary is of another kind.
    """
    pairs = read_metadata(path)
    model, pre = _text(pairs, "tokenizer.ggml.model"), _text(pairs, "tokenizer.ggml.pre")
    if model != "gpt2" or pre not in _KINDS:
        known = ", ".join(f"`gpt2` / `{name}`" for name in _KINDS)
        reason = (
            f"`{path}`: its vocabulary is of kind `{model}` / `{pre}`, known: {known};"
            " set `engine.tokenizer` to the model's tokenizer.json"
        )
        raise ConfigError(reason=reason)
    try:
        return _open(pairs, path)
    except ConfigError:
        raise
    except (
        Exception
    ) as error:  # the library raises bare Exception for a vocabulary it cannot take
        reason = (
            f"`{path}`: its vocabulary cannot be read: {type(error).__name__}: {error};"
            " set `engine.tokenizer` to the model's tokenizer.json"
        )
        raise ConfigError(reason=reason) from error


def _open(pairs: Mapping[str, Any], path: Path) -> JsonTokenizer:
    tokens = [token.decode() for token in _list(pairs, "tokenizer.ggml.tokens", path)]
    architecture = _text(pairs, "general.architecture")
    return JsonTokenizer(
        _build(pairs, tokens, path).to_str(),
        named_tokens=_named(pairs, tokens),
        chat_template=_text(pairs, "tokenizer.chat_template"),
        max_model_tokens=int(pairs.get(f"{architecture}.context_length", 0)),
    )


def _build(pairs: Mapping[str, Any], tokens: Sequence[str], path: Path) -> Library:
    merges = [merge.decode() for merge in _list(pairs, "tokenizer.ggml.merges", path)]
    kinds = _list(pairs, "tokenizer.ggml.token_type", path)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs_of_merges = [(left, right) for left, _, right in (m.partition(" ") for m in merges)]
    kind = _KINDS[_text(pairs, "tokenizer.ggml.pre")]
    library = Library(
        models.BPE(vocab=vocabulary, merges=pairs_of_merges, ignore_merges=kind.ignores_merges)
    )
    library.pre_tokenizer = _splitter(kind)
    library.decoder = decoders.ByteLevel()
    library.add_tokens(
        [
            control_token(token, is_control=kind == _CONTROL)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    around = _around(pairs, tokens, adds_bos=kind.adds_bos)
    if around:
        library.post_processor = around
    return library


def _around(pairs: Mapping[str, Any], tokens: Sequence[str], *, adds_bos: bool) -> Any:
    """What llama.cpp puts before and behind a text when asked to add special tokens."""
    ends = []
    for name, unsaid in (("bos", adds_bos), ("eos", False)):
        number = pairs.get(f"tokenizer.ggml.{name}_token_id")
        wanted = pairs.get(f"tokenizer.ggml.add_{name}_token", unsaid)
        ends.append(tokens[number] if wanted and number is not None else "")
    if not any(ends):
        return None
    return processors.TemplateProcessing(
        single=[token for token in (ends[0], "$A", ends[1]) if token],
        special_tokens=[(token, tokens.index(token)) for token in dict.fromkeys(ends) if token],
    )


def _named(pairs: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    numbers = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "pad_token": "padding_token_id",
        "unk_token": "unknown_token_id",
    }
    found = {name: pairs.get(f"tokenizer.ggml.{key}") for name, key in numbers.items()}
    return {name: tokens[number] for name, number in found.items() if number is not None}


def _text(pairs: Mapping[str, Any], key: str) -> str:
    value = pairs.get(key, b"")
    return value.decode() if isinstance(value, bytes) else ""


def _list(pairs: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    value = pairs.get(key)
    if not isinstance(value, list) or not value:
        reason = f"`{path}` lacks `{key}`; set `engine.tokenizer` to the model's tokenizer.json"
        raise ConfigError(reason=reason)
    return value
