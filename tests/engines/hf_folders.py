"""Model folders for tests of engines that read Hugging Face's layout: nothing is downloaded.

`smollm2_folder`: the demo model's GGUF file, its weights unpacked to bfloat16.
`random_folder`: a network of two small layers with random weights and the demo model's vocabulary; it talks
nonsense, and starts and answers fast.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file

from rowmill.config import EngineConfig
from rowmill.engines import demo_model
from rowmill.tokens import open_tokenizer

_HEADS = {"attn_q": "head_count", "attn_k": "head_count_kv"}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def smollm2_folder(into: Path) -> Path:
    """SmolLM2-135M-Instruct, as the demo model's package has it."""
    reader = GGUFReader(demo_model())
    told = {name: field.contents() for name, field in reader.fields.items()}
    weights = {}
    for tensor in reader.tensors:
        name = _their_name(tensor.name)
        if not name:
            continue
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in _HEADS:
            weight = _halves_first(weight, told[f"llama.attention.{_HEADS[part]}"])
        weights[name] = weight.to(torch.bfloat16).contiguous()
    config = {
        "hidden_size": told["llama.embedding_length"],
        "intermediate_size": told["llama.feed_forward_length"],
        "num_hidden_layers": told["llama.block_count"],
        "num_attention_heads": told["llama.attention.head_count"],
        "num_key_value_heads": told["llama.attention.head_count_kv"],
        "max_position_embeddings": told["llama.context_length"],
        "rms_norm_eps": told["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": told["llama.rope.freq_base"],
        "tie_word_embeddings": "lm_head.weight" not in weights,
    }
    return _written(into, config, weights)


def random_folder(into: Path, *, context: int = 2048) -> Path:
    """A network that answers nonsense: two layers, two heads of 64."""
    hidden, inner, vocabulary = 128, 256, 49152
    torch.manual_seed(0)
    sizes = {
        "attn_norm": (hidden,),
        "attn_q": (hidden, hidden),
        "attn_k": (hidden // 2, hidden),
        "attn_v": (hidden // 2, hidden),
        "attn_output": (hidden, hidden),
        "ffn_norm": (hidden,),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }
    weights = {
        "model.embed_tokens.weight": torch.randn(vocabulary, hidden),
        "model.norm.weight": torch.ones(hidden),
    }
    for layer in range(2):
        for part, size in sizes.items():
            name = f"model.layers.{layer}.{_PARTS[part]}.weight"
            weights[name] = torch.ones(size) if len(size) == 1 else torch.randn(size) * 0.2
    config = {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    return _written(into, config, {k: w.to(torch.bfloat16) for k, w in weights.items()})


def _their_name(name: str) -> str:
    """GGUF's name of a weight -> Hugging Face's; empty for what is none."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_PARTS[parts[2]]}.weight"
    return f"{_ENDS[parts[0]]}.weight" if parts[0] in _ENDS else ""


def _halves_first(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head, that GGUF has as pairs (0, half), (1, half + 1), ..., as two halves again."""
    rows = weight.shape[0] // heads
    order = torch.arange(rows).view(rows // 2, 2).t().reshape(-1)
    return weight.view(heads, rows, -1)[:, order].reshape(weight.shape)


def _written(into: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]) -> Path:
    tokenizer: Any = open_tokenizer(EngineConfig(name="llamacpp", model=str(demo_model())))
    library = tokenizer._library
    bos, eos = (library.token_to_id(text) for text in (tokenizer.bos, tokenizer.eos))
    ends = {"bos_token_id": bos, "eos_token_id": eos}
    into.mkdir(parents=True, exist_ok=True)
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    texts = {
        "config.json": {
            **config,
            **ends,
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": int(weights["model.embed_tokens.weight"].shape[0]),
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "attention_bias": False,
            "mlp_bias": False,
        },
        "generation_config.json": ends,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokenizer.bos,
            "eos_token": tokenizer.eos,
            "chat_template": tokenizer.chat_template,
        },
    }
    for name, value in texts.items():
        (into / name).write_text(json.dumps(value, indent=1), "utf-8")
    library.save(str(into / "tokenizer.json"))
    return into
