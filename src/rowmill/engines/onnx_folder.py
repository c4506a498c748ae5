"""Folder of an embedding model -> where its weights lie and how its files say that texts become vectors.

Promises: nothing is loaded; what no file says stays open.
Knows nothing of: onnxruntime, rows.
Memory: a few settings.
Source: the layout of sentence-transformers (modules.json, 1_Pooling/config.json, sentence_bert_config.json) and of
transformers (config.json, tokenizer_config.json).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from rowmill import errors
from rowmill.kinds_config import EmbedConfig

Pooling = Literal["mean", "cls", "last"]

_FILES = ("model.onnx", "onnx/model.onnx")
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_MOST_TOKENS = 2**20
"""Stand-ins for "no limit" are far above."""


class Folder(msgspec.Struct, frozen=True):
    """What the files say."""

    file: Path
    """The weights."""
    pooling: Pooling | None
    """None: no file says it."""
    normalises: bool | None
    """Whether vectors are brought to length 1; None: no file says it."""
    dimensions: int
    """0: no file says it."""
    max_tokens: int
    """Of one text; 0: no file says it."""
    config: dict[str, Any] = {}
    """config.json."""

    def pooling_for(self, asked: EmbedConfig, *, has_pooled: bool) -> Pooling | None:
        """How to pool as a job asks; None: take what the model has pooled itself.

        Raises:
            ConfigError: nobody says how.
        """
        if asked.pooling != "auto":
            return asked.pooling
        if has_pooled:
            return None
        if self.pooling is None:
            reason = (
                f"`embed.pooling`: no file beside `{self.file}` says how the model pools;"
                " set `mean`, `cls` or `last`, as its makers say"
            )
            raise errors.ConfigError(reason=reason)
        return self.pooling


def find_file(model: str, name: str) -> Path | None:
    """The weights of a model that is a folder or the file itself; None where there are none.

    Args:
        name: of the file in the folder; empty: the usual ones are looked for.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return path
    found = (path / one for one in ((name,) if name else _FILES))
    return next((file for file in found if file.is_file()), None)


def read_folder(file: Path) -> Folder:
    """What lies beside a file of weights, or a folder up as in `onnx/model.onnx`."""
    root = next(
        (folder for folder in (file.parent, file.parent.parent) if _is_root(folder)),
        file.parent,
    )
    modules = _read(root / "modules.json")
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in _entries(modules)]
    paths = {
        kind: str(one.get("path", ""))
        for kind, one in zip(kinds, _entries(modules), strict=True)
    }
    pooling = _object(root / paths.get("Pooling", "1_Pooling") / "config.json")
    config = _object(root / "config.json")
    return Folder(
        file=file,
        pooling=_pooling(pooling),
        normalises="Normalize" in kinds if kinds else None,
        dimensions=_first_int(
            pooling.get("word_embedding_dimension"), config.get("hidden_size")
        ),
        max_tokens=_max_tokens(root, config),
        config=config,
    )


def _is_root(folder: Path) -> bool:
    return (folder / "config.json").is_file() or (folder / "tokenizer.json").is_file()


def _pooling(config: dict[str, Any]) -> Pooling | None:
    asked = [
        name for name, value in config.items() if name.startswith("pooling_mode_") and value
    ]
    named = config.get("pooling_mode")
    if named in _POOLINGS.values():
        return named
    # Several at once are laid side by side: none of ours.
    return _POOLINGS.get(asked[0]) if len(asked) == 1 else None


def _max_tokens(root: Path, config: dict[str, Any]) -> int:
    """The least of the limits that the files tell."""
    positions = _first_int(config.get("max_position_embeddings"))
    if positions and str(config.get("model_type", "")).endswith("roberta"):
        # Its positions begin behind that of padding.
        positions -= _first_int(config.get("pad_token_id")) + 1
    told = [
        positions,
        _first_int(_object(root / "sentence_bert_config.json").get("max_seq_length")),
        _first_int(_object(root / "tokenizer_config.json").get("model_max_length")),
    ]
    return min((limit for limit in told if 0 < limit < _MOST_TOKENS), default=0)


def _first_int(*values: Any) -> int:
    return next((int(v) for v in values if isinstance(v, int | float) and v < 2**62), 0)


def _read(file: Path) -> Any:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        reason = f"`{file}` is no JSON: {error}"
        raise errors.ConfigError(reason=reason) from error


def _object(file: Path) -> dict[str, Any]:
    found = _read(file)
    return found if isinstance(found, dict) else {}


def _entries(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
