"""Shape, GPU -> how long one step of an engine takes: the roofline, with what products of matrices really reach.

Promises: pure arithmetic; every term is a field, so that a plan can say what a step waits for.
Knows nothing of: rows, schedulers.
Source: H200, vLLM 0.25.1, kernels by torch.profiler. 0.5B shape, 4,000 rows of 41 tokens in steps of 16,384: 0.264 s, of
them 0.153 products of matrices (797 TFLOP/s), 0.031 attention, 0.06 element-wise. The curve over tokens a step is that of
an H100 and a layer of 4,096 (Vidur, commit 7d47513, as in its GEMM timings). Beside the GPU: 11 ms a step of 1,024 rows.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from rowmill.size.gpus import Gpu
from rowmill.size.shape import ModelShape

GEMM_CURVE = (
    (1, 0.006),
    (64, 0.31),
    (128, 0.38),
    (256, 0.52),
    (512, 0.83),
    (1024, 0.96),
    (2048, 1.0),
)
"""(tokens a step, part of the GPU's rate): Vidur's model FLOP use of an H100, over that of 2,048 tokens."""
BANDWIDTH_SHARE = 0.85
LAUNCH_S = 45e-6
"""A layer's kernels one after the other, however little they compute: 24 layers take 1.1 ms in a CUDA graph."""
SUSTAINED = 0.87
"""Part of the rate of a short product that a GPU keeps under load for seconds."""
EIGHT_BIT_GAIN = 1.4
"""fp8 weights against bf16, quantizing of activations counted in: 14.2 s became 10.9."""
ROW_S, BLOCK_S = 300e-6, 5e-6
"""Processor time of the engine's core that a row costs, from its request to its end, and each block of its prompt: one
engine did 2,800 rows of 41 tokens a second, however many the GPU could."""
OVERLAP = 0.7
"""Part of the shorter of GPU and processor that is hidden behind the longer."""
TURN_S = 0.5e-3
"""What it costs a GPU to go from one process to another."""
STEP_FLOOR_S = 0.002
"""Processor time of a step whatever is in it."""
SEAT_S = 9e-6
"""Processor time that each row in a step adds: 11 ms at 1,024 rows, measured with vLLM 0.25.1 on an H200."""
ATTENTION_TOKEN_S = 0.56e-9
"""What short prompts cost in attention, for a token, a head and a layer of an H200: tiles that are mostly empty."""
_H200_FLOPS = 790e12


class StepModel(msgspec.Struct, frozen=True):
    """What a step costs one engine on `parallel` GPUs."""

    shape: ModelShape
    gpu: Gpu
    dtype: str = ""
    quantization: str = ""
    kv_dtype: str = ""
    parallel: int = 1
    """Tensor parallel: GPUs that share each product."""

    def gpu_s(
        self, *, tokens: int, rows: int, context: float, prompt_pairs: float = 0.0
    ) -> float:
        """Seconds on the GPU.

        Args:
            tokens: all that are computed: new ones of prompts, and one of each row that is past its prompt.
            rows: rows that get a token.
            context: tokens of KV cache that rows past their prompts read, together.
            prompt_pairs: pairs of a new token of a prompt and one before it.
        """
        return (
            max(self.product_s(tokens, rows), self.weights_s)
            + self.elements_s(tokens)
            + self.attention_s(tokens, prompt_pairs)
            + self.cache_s(context)
            + self.shape.layers * LAUNCH_S / 2
        )

    @property
    def weights_s(self) -> float:
        """Reading all weights once."""
        weights = self.shape.weight_bytes(dtype=self.dtype, quantization=self.quantization)
        return weights / (self.gpu.bandwidth * BANDWIDTH_SHARE * self.parallel)

    def product_s(self, tokens: int, rows: int) -> float:
        """Products of matrices: all layers for all tokens, the vocabulary for rows that get one."""
        gain = EIGHT_BIT_GAIN if self._is_eight_bit else 1.0
        rate = SUSTAINED * self.gpu.flops * self.parallel * gain
        layers = 2.0 * self.shape.active_params * tokens / (rate * gemm_share(tokens))
        head = 2.0 * self.shape.vocabulary * self.shape.hidden * rows
        return layers + head / (self.gpu.flops * self.parallel * gemm_share(rows))

    def elements_s(self, tokens: int) -> float:
        """Norms, rotations, activations: 3 values of the inner size and 12 of the hidden size a layer, read or written."""
        shape = self.shape
        inner = (
            shape.experts_used * (shape.expert_size or shape.intermediate)
            if shape.experts
            else shape.intermediate
        )
        a_token = 2.0 * shape.layers * (3 * inner + 12 * shape.hidden)
        return a_token * tokens / (self.gpu.bandwidth * self.parallel)

    def attention_s(self, tokens: int, prompt_pairs: float) -> float:
        """Attention of new tokens of prompts to all before them."""
        shape = self.shape
        pairs = 4.0 * shape.layers * shape.heads * shape.head_size * prompt_pairs
        least = (
            ATTENTION_TOKEN_S
            * _H200_FLOPS
            / self.gpu.flops
            * tokens
            * shape.layers
            * shape.heads
        )
        return (least + pairs / (0.6 * self.gpu.flops)) / self.parallel

    def cache_s(self, context: float) -> float:
        """Reading the KV cache of rows past their prompts."""
        read = context * self.shape.kv_bytes(kv_dtype=self.kv_dtype, dtype=self.dtype)
        return read / (self.gpu.bandwidth * BANDWIDTH_SHARE * self.parallel)

    def beside_s(self, rows: int, new_rows: int, new_blocks: float) -> float:
        """Seconds of one processor beside the GPU."""
        return STEP_FLOOR_S + SEAT_S * rows + ROW_S * new_rows + BLOCK_S * new_blocks

    @property
    def _is_eight_bit(self) -> bool:
        return self.quantization.startswith("fp8") or self.shape.quantization.startswith("fp8")


def gemm_share(tokens: float) -> float:
    """Part of the GPU's rate that products with so many tokens reach."""
    if tokens <= 1:
        return GEMM_CURVE[0][1]
    at = bisect_right(GEMM_CURVE, (tokens, 2.0))
    if at == len(GEMM_CURVE):
        return GEMM_CURVE[-1][1]
    (left, low), (right, high) = GEMM_CURVE[at - 1], GEMM_CURVE[at]
    return low + (high - low) * (tokens - left) / (right - left)
