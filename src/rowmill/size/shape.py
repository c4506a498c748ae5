"""config.json -> ModelShape: parameters, and bytes of KV cache a token.

Promises: grouped queries are counted as such: 2 x layers x KV heads x head size x bytes, not 2 x layers x hidden size;
latent attention (MLA) as one vector a layer without the factor 2. A shape that is not understood is None, never a guess.
Knows nothing of: weights on the disk.
Source: vLLM's page size, and its own for latent attention; Qwen2.5-7B has 57,344 bytes a token.
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
        width = BYTES_OF.get(dtype or self.dtype, 2)
        bits = QUANTIZED_BITS.get(quantization or self.quantization, 8 * width)
        return self.embedding_params * width + self.linear_params * bits // 8

    def kv_bytes(self, *, kv_dtype: str = "", dtype: str = "") -> int:
        """Bytes of KV cache a token."""
        width = 1 if kv_dtype.startswith("fp8") else BYTES_OF.get(dtype or self.dtype, 2)
        if self.latent:
            return self.layers * self.latent * width
        return 2 * self.layers * self.kv_heads * self.head_size * width

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
    """The shape of the model in a folder; None where there is no config.json, or one that is not understood."""
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
        )
    except (KeyError, TypeError, ValueError):
        return None


def _rope_size(config: Mapping[str, Any]) -> int:
    """Latent attention caches the rotated part beside the latent one."""
    return int(config.get("qk_rope_head_dim") or 0) if config.get("kv_lora_rank") else 0
