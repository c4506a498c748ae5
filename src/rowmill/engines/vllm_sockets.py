"""The sockets over which vLLM's processes talk, in a folder of our own: vLLM never removes them.

Promises: a folder that its owner left behind is removed by the next start (storage/temporary.py).
Knows nothing of: engines.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rowmill.storage.temporary import temporary_folder

_SOCKETS, _LONGEST_FOLDER = "VLLM_RPC_BASE_PATH", 64
"""The kernel takes 107 bytes for the path of a socket; vLLM's names have 36."""


def own_sockets() -> Path | None:
    """A folder for the sockets, which vLLM is told of; None: the user named one."""
    if _SOCKETS in os.environ:
        return None
    folder = temporary_folder("vllm")
    if len(str(folder)) > _LONGEST_FOLDER:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    os.environ[_SOCKETS] = str(folder)
    return folder


def remove_sockets(folder: Path | None) -> None:
    """Remove what `own_sockets` made."""
    if folder is not None:
        os.environ.pop(_SOCKETS, None)
        shutil.rmtree(folder, ignore_errors=True)
