"""Shapes of models that benchmarks are run with: folders with a config.json and a tokenizer, without weights.

Speed does not depend on the values of weights. Numbers are those that Qwen2.5 is published with. The folder of the
benchmarks must not be searched where an engine is imported, as it holds a `vllm.py`: this is imported before, or by the
parent of the process that does.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

SHAPES = {  # hidden, intermediate, layers, heads, KV heads, vocabulary, tied embeddings
    "tiny": (128, 256, 2, 2, 1, 151936, True),
    "0.5b": (896, 4864, 24, 14, 2, 151936, True),
    "1.5b": (1536, 8960, 28, 12, 2, 151936, True),
    "7b": (3584, 18944, 28, 28, 4, 152064, False),
    "72b": (8192, 29568, 80, 64, 8, 152064, False),
}


def config_of(name: str) -> dict[str, Any]:
    """What config.json says of a shape."""
    hidden, inner, layers, heads, kv_heads, vocabulary, tied = SHAPES[name]
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "use_sliding_window": False,
        "max_window_layers": layers,
    }


def make_model(name: str, into: Path, tokenizer: Path) -> Path:
    """A folder with the shape of a Qwen2.5 and a tokenizer, without weights."""
    folder = into / f"qwen2.5-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(name), indent=1), "utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / file, folder)
    return folder
