"""How a run stands at one moment, in numbers: what is written down, shown, and judged.

Promises: what counts up (`_s`, rows, tokens, bytes) is the sum since the worker began, so that any two samples have all
that happened between them; what goes up and down is the mean since the sample before.
Knows nothing of: where the numbers come from, who reads them.
Memory: a kilobyte, about.
"""

from __future__ import annotations

import msgspec


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the time of the one thread of a stage went, in seconds so far."""

    worked_s: float = 0.0
    starved_s: float = 0.0
    """Waited for the stage before it."""
    blocked_s: float = 0.0
    """Waited for room behind it."""


class GpuUse(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One GPU that this worker may use; what a driver does not tell stays at its default."""

    index: int
    use: float = 0.0
    """Share of the time in which any kernel ran."""
    memory_use: float = 0.0
    """Share of the time in which memory was read or written."""
    memory_bytes: int = 0
    """Taken, by whomever."""
    power_w: float = 0.0
    power_limit_w: float = 0.0
    clock_mhz: float = 0.0
    """Of the multiprocessors."""
    full_clock_mhz: float = 0.0
    """The fastest it knows."""
    temperature_c: float = 0.0
    tensor_use: float = -1.0
    """Share of the time in which tensor cores worked; -1 where the driver does not count it, as before Hopper."""
    bandwidth_use: float = -1.0
    """Share of the memory's bandwidth that was used; -1 likewise."""


class Sample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One moment of one worker."""

    seconds: float = 0.0
    """Since it took its first row; the engine's start is not in it."""
    total: int = 0
    """Rows that the run will end up with, as far as known."""
    resumed: int = 0
    """Rows among the next three that earlier starts finished."""
    done: int = 0
    ok: int = 0
    failed: int = 0
    work_done: float = 0.0
    """Of rows answered in this start, in tokens of a prompt: an answer's count three times."""
    work_left: float = 0.0
    """Of those that are left, as far as can be said."""
    cost: float = 0.0
    """So far, at the prices of `[run]`."""
    hour_price: float = 0.0
    """Of all GPUs for an hour."""
    cost_left: float = 0.0
    """What an endpoint will ask for the tokens that are left."""
    prompt_tokens: int = 0
    """Of rows answered in this start, as all tokens here."""
    cached_tokens: int = 0
    output_tokens: int = 0
    rows_read: int = 0
    """Read and validated."""
    rows_planned: int = 0
    """Of those, measured and planned, or fallen out."""
    rows_fed: int = 0
    """Given to the engine."""
    rows_answered: int = 0
    """Answered by it."""
    waiting: dict[str, float] = {}
    """Rows before each stage: `measure`, `feed`, `engine` (given to it and not begun), `write` (answered and
    not written), `copies` (of rows in flight)."""
    in_flight: float = 0.0
    """Rows that the engine has, or has answered and that are being written."""
    row_s: float = 0.0
    """Seconds times the same."""
    written_row_s: float = 0.0
    """Seconds times rows that were being written."""
    in_flight_target: float = 0.0
    """That it should have."""
    seats: int = 0
    """Rows that it works on at once."""
    active_s: float = 0.0
    """Seconds since the engine got its first row."""
    empty_s: float = 0.0
    """Seconds times the share of seats without a row, while rows were left to give."""
    tail_s: float = 0.0
    """Seconds since no row was left to give."""
    tail_empty_s: float = 0.0
    """The same as `empty_s`, since then."""
    stages: dict[str, Stage] = {}
    """`read` (and validate), `measure` (tokenise), `plan` (works in the thread of `measure`, whose waits stand there),
    `feed`, `write` (outcomes into segments), `keep` (commits, checkpoints)."""
    cpu_s: dict[str, float] = {}
    """Processor time: `rowmill`, `engine` (the adapters' processes), `engine NAME` (what those started, as vLLM's
    core), `other` (what else this worker started); and of threads of `rowmill`: `rowmill/read` and so on."""
    memory_bytes: dict[str, int] = {}
    """Resident, of the same processes."""
    disk_read_bytes: int = 0
    """From disks, by those processes."""
    disk_write_bytes: int = 0
    net_in_bytes: int = 0
    """Of this machine, the loopback left out."""
    net_out_bytes: int = 0
    loop_bytes: int = 0
    """Through the loopback."""
    engine: dict[str, float] = {}
    """What engines count themselves, of those that do: `running`, `waiting`, `kv_use`, `hit_rate` (shares),
    `preemptions`, `steps`, `retries`, `seats` (found by itself)."""
    gpus: list[GpuUse] = []
