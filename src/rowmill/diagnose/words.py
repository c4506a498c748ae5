"""A station that a run waited for -> what was seen, and what to do.

Promises: one sentence each, with the numbers that it rests on; no row text.
Knows nothing of: thresholds.
"""

from __future__ import annotations

from rowmill.diagnose.signs import Signs
from rowmill.events import Verdict


def too_short(s: Signs, least_s: float) -> str:
    """Nothing can be said."""
    return f"{s.seconds:.1f} s of work are too short to tell what it waited for; {least_s:g} s are the least"


def reading(s: Signs) -> Verdict:
    """Rows were not read fast enough."""
    return Verdict(
        station="reading",
        says=f"seats stood empty {s.starved_share:.0%} of the time for want of rows: reading the input is the slowest station",
        remedy="put the input on a faster disk or nearer, as plain JSON Lines or Parquet (packed text is unpacked in one"
        " thread), or split it among several workers",
    )


def tokenising(s: Signs) -> Verdict:
    """Rows were not tokenised fast enough."""
    told = s.began.tokenizer_threads if s.began is not None else 0
    cores = s.began.cores if s.began is not None else 0
    if told and told < cores:
        remedy = (
            f"the tokenizer was told to use {told} thread{'' if told == 1 else 's'} of {cores:g} cores:"
            " unset `RAYON_NUM_THREADS` and `TOKENIZERS_PARALLELISM`"
        )
    else:
        remedy = "give it more cores, or have rows tokenised on other nodes (`ray.prepare`)"
    return Verdict(
        station="tokenising",
        says=f"seats stood empty {s.starved_share:.0%} of the time for want of rows: tokenising is the slowest station"
        f" ({s.tokenizer_cores:.1f} cores used)",
        remedy=remedy,
    )


def planning(s: Signs) -> Verdict:
    """Rows were not put in order fast enough."""
    return Verdict(
        station="planning",
        says=f"seats stood empty {s.starved_share:.0%} of the time for want of rows: planning is the slowest station",
        remedy='lower `plan.window_rows`, or set `plan.order = "file"` where the order gains little',
    )


def tail(s: Signs) -> Verdict:
    """The last rows took long."""
    shorter = "lower `sampling.max_tokens` where a few long answers are cut anyway, "
    return Verdict(
        station="tail",
        says=f"seats stood empty {s.tail_share:.0%} of the time at the end, while the last rows were answered",
        remedy=f"{shorter if s.answer_tokens else ''}give it more rows at once, or fewer replicas",
    )


def writing(s: Signs) -> Verdict:
    """Outcomes were not written fast enough."""
    waits = s.write_wait_share >= 0.5 * s.write_share
    where = (
        "the disk or store of the output takes them too slowly"
        if waits
        else "its thread is busy"
    )
    return Verdict(
        station="writing",
        says=f"outcomes were being written {s.write_share:.0%} of the time: {where}",
        remedy="put the output on a faster disk (`rowmill doctor OUT` measures it) or nearer, and raise `run.checkpoint_s`"
        if waits
        else "share the run among several workers",
    )


def kv_full(s: Signs) -> Verdict:
    """The KV cache holds no more rows."""
    seen = f"the KV cache is {s.kv_use:.0%} full while rows wait"
    if s.preempted >= 0.01:
        seen += f", and {s.preempted:.0%} of the rows were computed again for want of it"
    return Verdict(
        station="KV full",
        says=seen,
        remedy='raise `engine.gpu_memory_utilization`, set `engine.kv_cache_dtype = "fp8"`, take a smaller or quantised'
        " model or more GPUs; where rows are computed again, lower `engine.seats`",
    )


def token_budget(s: Signs) -> Verdict:
    """Steps are too small."""
    most = s.engine.step_tokens if s.engine is not None else 0
    return Verdict(
        station="token budget",
        says=f"steps are full ({s.step_tokens:,.0f} of {most:,} tokens) while {s.waiting:,.0f} rows wait",
        remedy=f"raise `engine.max_num_batched_tokens` ({most:,} now; 8,192 to 32,768 are usual on GPUs), or leave it out",
    )


def seats(s: Signs) -> Verdict:
    """Seats are too few."""
    return Verdict(
        station="seats",
        says=f"all {s.seats:,} seats are taken while {s.waiting:,.0f} rows wait, and the KV cache is {s.kv_use:.0%} full",
        remedy=f"raise `engine.seats` ({s.seats:,} now), or leave it out",
    )


def endpoint(s: Signs, *, is_held: bool) -> Verdict:
    """The other side takes its time; `is_held`: with all rows that the job's own setting lets it have."""
    if is_held:
        return Verdict(
            station="endpoint",
            says=f"the endpoint is what it waits for: {s.answer_s:.2g} s a row with {s.at_once:,.0f} rows at once, all that"
            f" `engine.seats` ({s.seats:,}) lets it have, and it refuses none",
            remedy="leave `engine.seats` out, and how many it takes at once is found, or raise it; if it is used up, add"
            " endpoints to `engine.url`",
        )
    refused = (
        f", and {s.retried:.0%} of the requests had to be made again"
        if s.retried >= 0.01
        else ""
    )
    return Verdict(
        station="endpoint",
        says=f"the endpoint is what it waits for: {s.answer_s:.2g} s a row with {s.at_once:,.0f} rows at once{refused}",
        remedy=f"add endpoints to `engine.url`, raise `engine.seats` ({s.seats:,} now) if it has room for more at once,"
        " or ask its operator for a higher limit",
    )


def own(s: Signs) -> Verdict:
    """So many rows a second are more than one interpreter passes on."""
    return Verdict(
        station="rowmill",
        says=f"{s.rows_s:,.0f} rows/s keep rowmill's own process busy ({s.own_cores:.1f} cores): it is the slowest station",
        remedy='share the run among several workers (`run.executor = "ray"`, or an Indexed Job)',
    )


def gpu_compute(s: Signs) -> Verdict:
    """The good end."""
    more = "prompts that share beginnings" if s.answer_tokens else "a smaller model"
    return Verdict(
        station="GPU compute",
        says=f"the GPU computes all the time ({_use(s)}): nothing before or behind it is in its way",
        remedy=f'faster: `engine.quantization = "fp8"`, {more}, or more GPUs',
        is_well=True,
    )


def gpu_bandwidth(s: Signs) -> Verdict:
    """Weights and KV cache are read all the time."""
    return Verdict(
        station="GPU bandwidth",
        says=f"the GPU reads memory all the time ({_use(s)}): each step reads the weights and the KV cache of all rows",
        remedy='faster: more rows a step where the KV cache has room (`engine.seats`), `engine.kv_cache_dtype = "fp8"`,'
        " a quantised model",
        is_well=True,
    )


def engine_cpu(s: Signs) -> Verdict:
    """The engine's own processes are slower than what they drive."""
    use = f"the GPU is not used up ({_use(s)}), " if s.gpu is not None else ""
    replicas = s.engine.replicas if s.engine is not None else 1
    return Verdict(
        station="engine CPU",
        says=f"{use}{s.engine_cores:.1f} cores are busy in the engine's processes: its CPU side is the slowest station",
        remedy=f"raise `engine.replicas` ({replicas} now): several engines share a GPU or a machine; fewer `engine.seats` may"
        " make steps shorter",
    )


def cpu_compute(s: Signs, cores: float) -> Verdict:
    """Likewise the good end, where there is no GPU."""
    return Verdict(
        station="CPU compute",
        says=f"the engine computes on {s.engine_cores:.1f} of {cores:g} cores all the time: nothing before or behind it is"
        " in its way",
        remedy="faster: a GPU, a smaller or quantised model, or more machines",
        is_well=True,
    )


def engine(s: Signs) -> Verdict:
    """Nothing else is known."""
    name = s.engine.name if s.engine is not None else "engine"
    return Verdict(
        station="engine",
        says=f"the engine (`{name}`) is what it waits for: {s.answer_s:.2g} s a row with {s.at_once:,.0f} rows at once",
        remedy=f"raise `engine.seats` ({s.seats:,} now) or the number of engines, if it has room for more",
        is_well=True,
    )


def _use(s: Signs) -> str:
    if s.gpu is None:
        return "no GPU"
    told = f"kernels {s.gpu.use:.0%} of the time"
    if s.gpu.tensor_use >= 0:
        told += f", tensor cores {s.gpu.tensor_use:.0%}, bandwidth {s.gpu.bandwidth_use:.0%}"
    return told
