"""Model shape, GPU -> bytes, tokens, seats: what fits, before anything is loaded.

Promises: pure arithmetic on what config.json says; every figure can be printed with its formula.
Knows nothing of: engines' libraries, rows, files of rows.
"""

from rowmill.size.gpus import Gpu, find_gpus
from rowmill.size.pool import Budget, pool_bytes, step_times
from rowmill.size.shape import ModelShape, read_shape

__all__ = [
    "Budget",
    "Gpu",
    "ModelShape",
    "find_gpus",
    "pool_bytes",
    "read_shape",
    "step_times",
]
