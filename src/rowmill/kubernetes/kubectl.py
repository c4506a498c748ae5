"""Words for `kubectl` -> what the cluster answers: with the user's own contexts, plugins and rights.

Promises: nothing is kept; what the cluster says is passed on in its own words.
Knows nothing of: what objects mean.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from rowmill.errors import ConfigError

PROGRAM = "kubectl"
PATIENCE_S = 120.0
MAX_SHOWN = 300


def ask(words: Sequence[str], *, namespace: str = "", given: str = "") -> str:
    """What `kubectl` prints.

    Args:
        given: its standard input.

    Raises:
        ConfigError: it is not installed, does not reach the cluster, or was refused.
    """
    path = shutil.which(PROGRAM)
    if path is None:
        reason = "`kubectl` is not on the path; install it, or render a file and give that to whoever has it"
        raise ConfigError(reason=reason)
    where = ["--namespace", namespace] if namespace else []
    try:
        done = subprocess.run(
            [path, *where, *words],
            input=given.encode(),
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        reason = f"`kubectl {words[0]}` has not answered for {PATIENCE_S:.0f} s"
        raise ConfigError(reason=reason) from error
    if done.returncode:
        told = " ".join(done.stderr.decode(errors="replace").split())
        raise ConfigError(reason=f"`kubectl {words[0]}`: {told[-MAX_SHOWN:]}")
    return done.stdout.decode(errors="replace")


def get(kinds: str, *words: str, namespace: str = "") -> list[dict[str, Any]]:
    """Objects, none where there are none."""
    text = ask(["get", kinds, *words, "--ignore-not-found", "-o", "json"], namespace=namespace)
    if not text.strip():
        return []
    found = json.loads(text)
    return list(found["items"]) if found.get("kind") == "List" else [found]
