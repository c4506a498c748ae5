"""Small random models with heads, or for vectors, as folders: a BERT, a RoBERTa and a decoder of Qwen's shape.

Weights are drawn with a spread that makes texts differ; nothing is downloaded.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

HIDDEN, LAYERS, HEADS, CONTEXT = 128, 2, 2, 128
LETTERS = string.ascii_letters + string.digits + ".,;:!?'-"


def bert_folder(
    into: Path, labels: Sequence[str] = (), *, mean: bool = True, **more: Any
) -> Path:
    """A BERT: for vectors without `labels`, pooled by the mean or the first token; else with a head for them."""
    vocabulary = _letters(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "##")
    library = _wordpiece(vocabulary)
    library.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=256,
        max_position_embeddings=CONTEXT,
        pad_token_id=0,
        **_head(labels),
        **more,
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    kind = transformers.BertForSequenceClassification if labels else transformers.BertModel
    return _written(into, kind, config, library, names, "mean" if mean else "cls", labels)


def roberta_folder(into: Path, labels: Sequence[str]) -> Path:
    """A RoBERTa with a head: positions begin behind that of padding, kinds of tokens are not told."""
    vocabulary = _letters(["<s>", "<pad>", "</s>", "<unk>"], "##")
    library = _wordpiece(vocabulary, "<unk>")
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    config = transformers.RobertaConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=256,
        max_position_embeddings=CONTEXT + 2,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        **_head(labels),
    )
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    kind = transformers.RobertaForSequenceClassification
    return _written(into, kind, config, library, names, "cls", labels)


def qwen_folder(into: Path, labels: Sequence[str] = ()) -> Path:
    """A decoder of Qwen2's shape: its last token stands for the text. The token of padding is a letter."""
    vocabulary = _letters(["<|end|>", "<unk>"], "##")
    library = _wordpiece(vocabulary, "<unk>")
    library.post_processor = processors.TemplateProcessing(
        single="$A <|end|>", pair="$A $B:1 <|end|>:1", special_tokens=[("<|end|>", 0)]
    )
    config = transformers.Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        intermediate_size=256,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=vocabulary["e"],
        **_head(labels),
    )
    names = {"eos_token": "<|end|>", "unk_token": "<unk>"}
    kind = transformers.Qwen2ForSequenceClassification if labels else transformers.Qwen2Model
    return _written(into, kind, config, library, names, "lasttoken", labels)


def _head(labels: Sequence[str]) -> dict[str, Any]:
    names = dict(enumerate(labels))
    return {"id2label": names, "label2id": {v: k for k, v in names.items()}} if labels else {}


def _letters(specials: list[str], continuing: str) -> dict[str, int]:
    tokens = [*specials, *LETTERS, *(continuing + letter for letter in LETTERS)]
    return {token: number for number, token in enumerate(tokens)}


def _wordpiece(vocabulary: dict[str, int], unknown: str = "[UNK]") -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _written(
    into: Path,
    kind: Any,
    config: Any,
    library: tokenizers.Tokenizer,
    names: dict[str, str],
    pooling: str,
    labels: Sequence[str],
) -> Path:
    torch.manual_seed(7)
    model = kind(config).eval()
    for name, weight in model.named_parameters():
        # The library's own spread is so small that all texts look alike.
        if weight.dim() > 1:
            torch.nn.init.normal_(
                weight, std=1.0 if "classifier" in name or "score" in name else 0.15
            )
    into.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(into)
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names).save_pretrained(
        into
    )
    if not labels:
        (into / "1_Pooling").mkdir(exist_ok=True)
        told = {
            "word_embedding_dimension": HIDDEN,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_lasttoken": pooling == "lasttoken",
        }
        (into / "1_Pooling" / "config.json").write_text(json.dumps(told), "utf-8")
        modules = [
            {
                "idx": 0,
                "name": "0",
                "path": "",
                "type": "sentence_transformers.models.Transformer",
            },
            {
                "idx": 1,
                "name": "1",
                "path": "1_Pooling",
                "type": "sentence_transformers.models.Pooling",
            },
        ]
        (into / "modules.json").write_text(json.dumps(modules), "utf-8")
    return into
