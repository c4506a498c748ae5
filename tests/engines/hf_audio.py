"""A model folder that hears: a tiny Qwen2-Audio with random weights and a vocabulary of bytes. It talks nonsense, but other
nonsense for other sounds, and no download is needed for it."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioProcessor,
    WhisperFeatureExtractor,
)

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for c in m['content'] %}{% if c['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RATE, MOST_S = 16_000, 30  # vLLM wants the 30 s of the published models
_NAMED = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_OF_SOUND = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
_BANDS, _HOP = 16, 160


def audio_folder(into: Path) -> Path:
    """The folder, complete."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([*_NAMED, *_OF_SOUND])
    start, end, pad = _NAMED
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=library,
        bos_token=start,
        eos_token=end,
        pad_token=pad,
        chat_template=TEMPLATE,
    )
    sounds = WhisperFeatureExtractor(
        feature_size=_BANDS, sampling_rate=RATE, hop_length=_HOP, chunk_length=MOST_S
    )
    whole = Qwen2AudioProcessor(sounds, tokenizer, chat_template=TEMPLATE)
    model = Qwen2AudioForConditionalGeneration(_config(library)).to(torch.float32)
    whole.save_pretrained(into)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(into)
    # The names of the published models, which vLLM reads: `save_pretrained` of transformers 5.19 makes others.
    weights = {_published(name): weight for name, weight in model.state_dict().items()}
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    return into


def _published(name: str) -> str:
    inner = name.removeprefix("model.")
    if inner.startswith("language_model."):
        return inner.replace("language_model.", "language_model.model.", 1)
    return f"language_model.{inner}" if inner.startswith("lm_head.") else inner


def _config(library: Tokenizer) -> Qwen2AudioConfig:
    torch.manual_seed(0)
    start, end, pad = (library.token_to_id(name) for name in _NAMED)
    text = {
        "model_type": "qwen2",
        "vocab_size": library.get_vocab_size(),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "pad_token_id": pad,
        "bos_token_id": start,
        "eos_token_id": end,
    }
    audio = {
        "num_mel_bins": _BANDS,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        # Positions are counted behind the first convolution, which takes every second frame.
        "max_source_positions": MOST_S * RATE // _HOP // 2,
    }
    return Qwen2AudioConfig(
        text_config=text,
        audio_config=audio,
        audio_token_index=library.token_to_id("<|AUDIO|>"),
        pad_token_id=pad,
    )
