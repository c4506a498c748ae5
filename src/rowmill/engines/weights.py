"""A model's files -> a mistake where its weights are pickled: to read a pickle is to run what it says.

Promises: consent is a setting that names the format, so that it stands in the run's identity.
Knows nothing of: what the weights are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rowmill.config import EngineConfig

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
SAFE = (".safetensors", ".gguf")
NOT_PICKLED = ("original/**/*", *(f"*{suffix}" for suffix in PICKLED))
"""Patterns of files on a hub that are left there."""
CONSENT = "pt"


def pickled_mistakes(engine: EngineConfig) -> Iterator[str]:
    """What is wrong with the weights of a model and its adapters that lie here, a sentence each."""
    if engine.options.get("load_format") not in (CONSENT, "dummy"):
        yield from _mistake(
            "engine.model", engine.model, f'set `engine.load_format = "{CONSENT}"`'
        )
    loras = engine.options.get("loras")
    for name, folder in loras.items() if isinstance(loras, dict) else ():
        yield from _mistake(f"engine.loras.{name}", str(folder), "have it converted first")


def _mistake(setting: str, place: str, consent: str) -> Iterator[str]:
    found = pickled_only(Path(place).expanduser()) if place else ""
    if found:
        yield (
            f"`{setting}`: the weights in `{place}` are pickled (`{found}`), which can run code when they are"
            f" read; give a folder with safetensors, or, if you trust where they come from, {consent}"
        )


def pickled_only(folder: Path) -> str:
    """Name of pickled weights in a folder that has no others; empty where there are none."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return ""
    if any(name.endswith(SAFE) for name in names):
        return ""
    weights = [
        n for n in names if n.endswith(PICKLED) and "training" not in n and "optim" not in n
    ]
    return weights[0] if weights else ""
