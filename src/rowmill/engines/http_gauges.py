"""A server's `/metrics` -> whether rows wait there for a seat or for room in its KV cache.

Promises: a server without such a page, or with another one, is not asked again.
Knows nothing of: requests.
Memory: one page.
Source: names as vLLM 0.25 to 0.33, SGLang 0.5, llama.cpp and TGI 3 write them.
"""

from __future__ import annotations

import asyncio

from rowmill.engines.http_lanes import Lane
from rowmill.engines.http_wire import Wire

_WAITING = frozenset(
    (
        b"vllm:num_requests_waiting",
        b"sglang:num_queue_reqs",
        b"llamacpp:requests_deferred",
        b"tgi_queue_size",
    )
)
_KV_USE = frozenset(
    (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc", b"sglang:token_usage")
)
_FULL = 0.95
_EVERY_S = 2.0
_MOST_S = 5.0


async def watch(lane: Lane, wire: Wire) -> None:
    """Look at the page now and then, for as long as the server has one."""
    url = f"{lane.root.removesuffix('/v1')}/metrics"
    while True:
        response = await wire.get(url, most_s=_MOST_S)
        if response is not None:
            found = read(response.body) if response.status == 200 else None
            if found is None:
                return
            if is_crowded(*found, in_flight=lane.in_flight):
                lane.window.crowded()
        await asyncio.sleep(_EVERY_S)


def read(page: bytes) -> tuple[float, float] | None:
    """Rows that wait, and share of the KV cache in use; None where the page says nothing of rows."""
    waiting, kv_use, is_known = 0.0, 0.0, False
    for line in page.splitlines():
        name = line.partition(b" ")[0].partition(b"{")[0]
        if name in _WAITING:
            waiting, is_known = waiting + _value(line), True
        elif name in _KV_USE:
            kv_use = max(kv_use, _value(line))
    return (waiting, kv_use) if is_known else None


def is_crowded(waiting: float, kv_use: float, *, in_flight: int) -> bool:
    """Whether more requests at once would only wait: a quarter of ours does, or some do and the cache is full."""
    return waiting > in_flight / 4 or (waiting > 0 and kv_use >= _FULL)


def _value(line: bytes) -> float:
    try:
        return float(line.rpartition(b" ")[2])
    except ValueError:
        return 0.0
