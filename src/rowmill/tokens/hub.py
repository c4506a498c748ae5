"""A model's name on the Hugging Face hub -> the folder that holds its small files.

Promises: weights are not fetched; with `HF_HUB_OFFLINE` set, or without a network, what was fetched before is found.
Knows nothing of: what is in the files.
Memory: none kept.
"""

from __future__ import annotations

import re
from pathlib import Path

from rowmill.errors import ConfigError

SMALL_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+\Z")


def is_hub_name(model: str) -> bool:
    """Whether a model is named as on the hub, `owner/name`, and is no folder here."""
    return bool(_NAME.match(model)) and not Path(model).exists()


def hub_folder(name: str, revision: str) -> Path:
    """Folder with the configuration and the tokenizer of a model on the hub.

    Raises:
        ConfigError: It is not there, or cannot be asked for.
    """
    # Pulls a web client in; only models that are no folders need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    try:
        found = snapshot_download(
            name, revision=revision or None, allow_patterns=list(SMALL_FILES)
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (
            f"`engine.model`: `{name}` is no folder here, and the Hugging Face hub does not give it"
            f" ({type(error).__name__}); give a folder, or fetch it first with `hf download {name}`"
        )
        raise ConfigError(reason=reason) from error
    return Path(found)
