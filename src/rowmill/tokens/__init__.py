"""Texts -> token ids: `open_tokenizer()` finds the model's own tokenizer and opens it.

Promises: one packed uint32 array for a batch; text is encoded as the engine itself would.
Knows nothing of: rows, chat templates beyond carrying their text, engines beyond their settings.
Memory: the vocabulary, and one batch.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from rowmill.config import EngineConfig
from rowmill.errors import ConfigError
from rowmill.tokens.byte_tokens import ByteTokenizer
from rowmill.tokens.hub import hub_folder, is_hub_name
from rowmill.tokens.protocol import Tokenizer

__all__ = ["ByteTokenizer", "Tokenizer", "open_tokenizer"]

_ON_THE_HUB = frozenset(("transformers", "vllm"))
"""Engines whose models may be named as on the hub; of others a name means nothing here."""


def open_tokenizer(engine: EngineConfig) -> Tokenizer | None:
    """The tokenizer that `engine.tokenizer` names, else the one that lies beside `engine.model`.

    Returns:
        None where nothing names one, as with an endpoint that tokenises by itself.

    Raises:
        ConfigError: the place holds no tokenizer, or one of a kind that is not supported.
    """
    if engine.tokenizer == "bytes":
        return ByteTokenizer()
    if engine.tokenizer:
        return _open_at(Path(engine.tokenizer).expanduser(), "engine.tokenizer")
    if not engine.model or engine.name == "http" or "url" in engine.options:
        return None
    model = Path(engine.model).expanduser()
    if model.suffix == ".onnx":
        above = (model.parent, model.parent.parent)
        model = next((at for at in above if (at / "tokenizer.json").is_file()), model)
    if model.suffix == ".gguf" or (model / "tokenizer.json").is_file():
        return _open_at(model, "engine.model")
    if engine.name in _ON_THE_HUB and is_hub_name(engine.model):
        return _open_at(hub_folder(engine.model, engine.revision), "engine.model")
    return None


def _open_at(path: Path, setting: str) -> Tokenizer:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if not path.exists():
        reason = (
            f"`{setting}`: `{path}` does not exist;"
            " give a folder with tokenizer.json, such a file, a .gguf file, or `bytes`"
        )
        raise ConfigError(reason=reason)
    if path.suffix == ".gguf":
        from rowmill.tokens.gguf_vocabulary import open_gguf

        return open_gguf(path)
    return _open_folder(path, setting, _state_of(path))


@lru_cache(maxsize=2)
def _open_folder(path: Path, setting: str, _: tuple[tuple[str, int, int], ...]) -> Tokenizer:
    """A vocabulary takes most of a second to load: a program that runs job after job opens it once."""
    from rowmill.tokens.hugging_face import open_folder

    return open_folder(path, setting)


def _state_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Size and time of the files that a tokenizer is read from."""
    files = [path] if path.is_file() else sorted(path.glob("*.j*"))
    states = [(file.name, file.stat()) for file in files if file.is_file()]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
