"""A model folder that sees images: a tiny Idefics3 with random weights and a vocabulary of bytes. It talks nonsense, but
other nonsense for other images, and neither torchvision nor a download is needed for it."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    PreTrainedTokenizerFast,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}:{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>"
    "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
_NAMED = ("<|im_start|>", "<end_of_utterance>", "<|endoftext|>")
_OF_IMAGES = ("<fake_token_around_image>", "<image>", "<global-img>")
_THOUGHT = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_SIDE, _PATCH, _SCALE = 56, 14, 2


def image_folder(into: Path) -> Path:
    """The folder, complete."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    library.add_special_tokens([*_NAMED, *_OF_IMAGES, *tiles])
    library.add_tokens(list(_THOUGHT))
    start, end, pad = _NAMED
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=library,
        bos_token=start,
        eos_token=end,
        pad_token=pad,
        chat_template=TEMPLATE,
    )
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": 2 * _SIDE}, max_image_size={"longest_edge": _SIDE}
    )
    tokens = (_SIDE // _PATCH) ** 2 // _SCALE**2
    whole = Idefics3Processor(images, tokenizer, image_seq_len=tokens, chat_template=TEMPLATE)
    model = Idefics3ForConditionalGeneration(_config(library))
    model.to(torch.float32).save_pretrained(into)
    whole.save_pretrained(into)
    return into


def _config(library: Tokenizer) -> Idefics3Config:
    torch.manual_seed(0)
    start, end, pad = (library.token_to_id(name) for name in _NAMED)
    text = {
        "model_type": "llama",
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
    vision = {
        "image_size": _SIDE,
        "patch_size": _PATCH,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    return Idefics3Config(
        text_config=text,
        vision_config=vision,
        image_token_id=library.token_to_id("<image>"),
        scale_factor=_SCALE,
        pad_token_id=pad,
        tie_word_embeddings=False,
    )
