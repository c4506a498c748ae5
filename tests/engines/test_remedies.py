"""Last words of engines and what they are taken for. The words are those that the libraries wrote."""

from __future__ import annotations

import pytest

from rowmill.engines.remedies import remedy_for

TRACE = (
    '  File "/x/gpu_worker.py", line 300, in load_model\n    self.model_runner.load_model()\n'
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 0 has a total"
    " capacity of 79.10 GiB of which 12.25 MiB is free."
)
WORDS = {
    "held": (
        "ValueError: Free memory on device cuda:0 (3.2/79.1 GiB) on startup is less than desired GPU"
        " memory utilization (0.92, 72.77 GiB). Decrease GPU memory utilization or reduce GPU memory"
        " used by other processes.",
        "held",
        "another process",
    ),
    "too large": (TRACE + OOM, "weights", "too large"),
    "in a step": (OOM, "memory", "out of memory"),
    "on a processor": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't"
        " allocate memory: you tried to allocate 9663676416 bytes.",
        "memory",
        "out of memory",
    ),
    "oneDNN": ("RuntimeError: could not create a primitive", "memory", "out of memory"),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: cudaMalloc"
        " failed: out of memory",
        "memory",
        "out of memory",
    ),
    "no cache in SGLang": (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "cache",
        "no memory for a KV cache",
    ),
    "no cache": (
        "ValueError: No available memory for the cache blocks. Try increasing"
        " `gpu_memory_utilization` when initializing the engine",
        "cache",
        "no memory for a KV cache",
    ),
    "long rows": (
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB"
        " KV cache is needed, which is larger than the available KV cache memory (9.10 GiB). Based on"
        " the available memory, the estimated maximum model length is 74528.",
        "cache",
        "`engine.max_model_len`",
    ),
    "architecture": (
        "Value error, Model architectures ['Foo9ForCausalLM'] are not supported for now. Supported"
        " architectures: dict_keys(['AfmoeForCausalLM'])",
        "other",
        "architecture",
    ),
    "type": (
        "The checkpoint you are trying to load has model type `foo9` but Transformers does not"
        " recognize this architecture. This could be because of an issue with the checkpoint",
        "other",
        "install a newer one",
    ),
    "gguf": ("llama_model_load: unknown model architecture: 'foo9'", "other", "architecture"),
    "shm": (
        "torch.distributed.DistBackendError: NCCL error: Error while creating shared memory segment"
        " /dev/shm/nccl-AbCdEf (size 33030528), error: No space left on device (28)",
        "other",
        "/dev/shm",
    ),
    "shm of torch": (
        "RuntimeError: unable to write to file </torch_482_1>: No space left on device (28)",
        "other",
        "--shm-size",
    ),
    "bus": ("signal SIGBUS", "other", "/dev/shm"),
    "driver": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).",
        "other",
        "update the driver",
    ),
    "mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch",
        "other",
        "update the driver",
    ),
    "kernel": (
        "CUDA error: no kernel image is available for execution on the device",
        "other",
        "no code for this GPU",
    ),
    "remote code": (
        "The repository /m contains custom code which must be executed to correctly load the model.",
        "other",
        "`engine.trust_remote_code = true`",
    ),
    "gated": (
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
        "other",
        "`HF_TOKEN`",
    ),
    "pickled": (
        "RuntimeError: Cannot find any model weights with `/m`",
        "other",
        "safetensors",
    ),
    "no gpu": ("RuntimeError: Failed to infer device type", "other", "no GPU"),
    "heads": (
        "ValueError: Total number of attention heads (14) must be divisible by tensor parallel size (4).",
        "other",
        "tensor_parallel_size",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_sign_is_known_with_what_helps(name: str) -> None:
    words, sign, told = WORDS[name]
    remedy = remedy_for(f"INFO 11-30 starts\n{words}\n")

    assert remedy is not None
    assert sign == remedy.sign
    assert told in str(remedy)


@pytest.mark.parametrize(
    "words",
    [
        "Initializing a V1 LLM engine (v0.32.0) with config: trust_remote_code=False, dtype=bfloat16",
        "If out-of-memory error occurs during cudagraph capture, consider decreasing"
        " `gpu_memory_utilization` or switching to eager mode.",
        "Starting to load model /m/load_model...",
        "KeyError: 'lm_head.weight'",
        "signal SIGSEGV",
        "",
    ],
)
def test_what_an_engine_says_that_is_well_is_no_sign(words: str) -> None:
    assert remedy_for(words) is None
