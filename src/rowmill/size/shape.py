"""config.json, or a GGUF file's metadata -> ModelShape: parameters, and bytes of KV cache a token.

Promises: grouped queries are counted as such: 2 x layers x KV heads x head size x bytes, not 2 x layers x hidden size;
latent attention (MLA) as one vector a layer without the factor 2; layers with a window stop growing at it, layers
without attention keep a state of fixed size. A shape that is not understood is None, never a guess.
Knows nothing of: weights on the disk.
Source: vLLM's page size, and its own for latent attention; Qwen2.5-7B has 57,344 bytes a token. Which layers have
windows: `layer_types` of transformers since 4.53, before it the patterns of Gemma 2 (every second) and 3 (five of six).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

BYTES_OF = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp8": 1}
QUANTIZED_BITS = {"fp8": 8, "awq": 4, "awq_marlin": 4, "gptq": 4, "gptq_marlin": 4, "int8": 8}
"""Bits of a linear weight; scales and zero points are left out."""


class ModelShape(msgspec.Struct, frozen=True):
    """What sizes follow from."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    is_tied: bool
    """The output layer is the embedding."""
    max_tokens: int
    """Longest context it was made for."""
    dtype: str
    quantization: str = ""
    latent: int = 0
    """Of latent attention: size of what is cached a layer; 0 for other attention."""
    experts: int = 0
    """Of a mixture: how many there are; 0 for a dense model."""
    experts_used: int = 0
    expert_size: int = 0
    window: int = 0
    """Tokens that layers with a sliding window look back."""
    window_layers: int = 0
    stateful_layers: int = 0
    """Layers without attention: linear ones, state spaces."""
    file_bytes: int = 0
    """Of weights in a file that is loaded as it is, a GGUF one; 0: they follow from the parameters."""

    @property
    def embedding_params(self) -> int:
        """Parameters of the embedding and the output layer."""
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def linear_params(self) -> int:
        """Parameters of all layers: what a quantization applies to."""
        return self.layers * (self._attention_params + self._feed_forward_params(self.experts))

    @property
    def active_params(self) -> int:
        """Parameters that a token passes: of a mixture, only the experts it is sent to."""
        return self.layers * (
            self._attention_params + self._feed_forward_params(self.experts_used)
        )

    @property
    def params(self) -> int:
        """All parameters, about: norms and biases are left out."""
        return self.embedding_params + self.linear_params

    def weight_bytes(self, *, dtype: str = "", quantization: str = "") -> int:
        """Memory of the weights."""
        if self.file_bytes:
            return self.file_bytes
        width = BYTES_OF.get(dtype or self.dtype, 2)
        bits = QUANTIZED_BITS.get(quantization or self.quantization, 8 * width)
        return self.embedding_params * width + self.linear_params * bits // 8

    def kv_bytes(self, *, kv_dtype: str = "", dtype: str = "", tokens: int = 0) -> int:
        """Bytes of KV cache a token.

        Args:
            tokens: of a row: the mean over its tokens, as layers with windows stop growing; 0: while all grow.
        """
        width = 1 if kv_dtype.startswith("fp8") else BYTES_OF.get(dtype or self.dtype, 2)
        growing = self.layers - self.stateful_layers
        if self.latent:
            return growing * self.latent * width
        a_layer = 2 * self.kv_heads * self.head_size * width
        if not self.window_layers or tokens <= self.window:
            return growing * a_layer
        windows = self.window_layers * self.window / tokens
        return int((growing - self.window_layers + windows) * a_layer)

    @property
    def _attention_params(self) -> int:
        queries = self.heads * self.head_size
        return self.hidden * (2 * queries + 2 * self.kv_heads * self.head_size)

    def _feed_forward_params(self, experts: int) -> int:
        if not self.experts:
            return 3 * self.hidden * self.intermediate
        return self.hidden * (
            3 * experts * (self.expert_size or self.intermediate) + self.experts
        )


def read_shape(model: str | Path) -> ModelShape | None:
    """The shape of the model in a folder; None where there is no config.json, or one that is not understood.

    A GGUF file is read by who reads such files: `shape_of_gguf`.
    """
    path = Path(model).expanduser() / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return shape_of(config) if isinstance(config, dict) else None


def shape_of(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape that a config.json tells of."""
    inner = config.get("text_config")
    if isinstance(inner, dict):  # the language part of a multimodal model
        config = {**config, **inner}
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        quantization = config.get("quantization_config") or {}
        return ModelShape(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config.get("intermediate_size") or 4 * hidden),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            is_tied=bool(config.get("tie_word_embeddings", True)),
            max_tokens=int(config.get("max_position_embeddings") or 0),
            dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16"),
            quantization=str(quantization.get("quant_method", "")),
            latent=int(config.get("kv_lora_rank") or 0) + _rope_size(config),
            experts=int(
                config.get("num_local_experts")
                or config.get("n_routed_experts")
                or config.get("num_experts")
                or 0
            ),
            experts_used=int(config.get("num_experts_per_tok") or 0),
            expert_size=int(config.get("moe_intermediate_size") or 0),
            window=_window(config),
            window_layers=_layers_of(config, "sliding_attention", "chunked_attention"),
            stateful_layers=_layers_of(config, "linear_attention", "mamba", "conv"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def shape_of_gguf(told: Mapping[str, Any], file_bytes: int) -> ModelShape | None:
    """The shape that a GGUF file's metadata tells of.

    Args:
        told: its key-value pairs.
        file_bytes: its size: weights are loaded as they lie in it.
    """
    name = told.get("general.architecture")
    name = name.decode() if isinstance(name, bytes) else str(name)

    def number(key: str, other: int = 0) -> int:
        value = told.get(f"{name}.{key}", other)
        return int(max(value) if isinstance(value, list) else value or other)

    heads, hidden = number("attention.head_count"), number("embedding_length")
    if not (heads and hidden and number("block_count")):
        return None
    return ModelShape(
        layers=number("block_count"),
        hidden=hidden,
        intermediate=number("feed_forward_length", 4 * hidden),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_size=number("attention.key_length", hidden // heads),
        vocabulary=len(told.get("tokenizer.ggml.tokens") or ()) or number("vocab_size"),
        is_tied=True,
        max_tokens=number("context_length"),
        dtype="float16",
        experts=number("expert_count"),
        experts_used=number("expert_used_count"),
        expert_size=number("expert_feed_forward_length"),
        file_bytes=file_bytes,
    )


def _window(config: Mapping[str, Any]) -> int:
    """Tokens that layers with a window look back; 0 where no layer has one."""
    if config.get("use_sliding_window") is False:
        return 0
    return int(config.get("sliding_window") or config.get("attention_chunk_size") or 0)


def _layers_of(config: Mapping[str, Any], *kinds: str) -> int:
    """How many layers are of these kinds."""
    listed = config.get("layer_types")
    if isinstance(listed, list):
        found = sum(kind in kinds for kind in listed)
        return found if "sliding_attention" not in kinds or _window(config) else 0
    if "sliding_attention" not in kinds or not _window(config):
        return 0
    layers = int(config["num_hidden_layers"])
    every = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6}.get(str(config.get("model_type")), 0)
    every = int(config.get("sliding_window_pattern") or every)
    # Of so many layers one sees all; where no pattern is told, none does.
    return layers - layers // every if every else layers


def _rope_size(config: Mapping[str, Any]) -> int:
    """Latent attention caches the rotated part beside the latent one."""
    return int(config.get("qk_rope_head_dim") or 0) if config.get("kv_lora_rank") else 0
