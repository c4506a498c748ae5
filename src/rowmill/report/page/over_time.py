"""A run -> what went on over time: throughput, where the time went, rows in flight, GPU, KV cache, hits, processors.

Promises: a section without a figure says why in a sentence; it draws nothing empty.
Knows nothing of: HTML.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowmill.report.account import Account
from rowmill.report.page import numbers
from rowmill.report.page.blocks import Block, Drawn, Listed, Section, Text, stack
from rowmill.report.page.plots import Plot, Table, Values, over_time
from rowmill.shown.spans import duration

GIB = 2.0**30
LEAST_RATE = 2.0**15
"""Bytes a second; less is what a machine says to itself."""
PERCENT = 0.01
SMALL = 0.05
"""Of the seats: so many are empty where rows come and go."""
TOO_SHORT = (
    "The run was over before a second had gone by, so there is nothing to draw over time."
)
OTHER = "the other run"

Lines = dict[str, tuple[Values, float]]


class Times:
    """Lines over the time of a run, and beside it those of another."""

    def __init__(self, account: Account, other: Account | None) -> None:
        self.account, self.other = account, other
        both = (account, other) if other is not None else (account,)
        self.seconds = max(one.history.seconds for one in both)
        self.pauses = [pause.at for pause in account.history.pauses()]

    def lines(self, track: str, names: Mapping[str, str] | None = None) -> Lines:
        """Lines of a quantity under names for people; None: as they are called."""
        found = _lines_of(self.account, track, names)
        if self.other is not None:
            theirs = _lines_of(self.other, track, names)
            found |= {f"{name}, {OTHER}": line for name, line in theirs.items()}
        return found

    def plot(self, key: str, title: str, lines: Lines, y_label: str, **more: object) -> Plot:
        """A plot of lines over time."""
        return over_time(
            key,
            title,
            lines,
            seconds=self.seconds,
            y_label=y_label,
            pauses=self.pauses,
            **more,  # type: ignore[arg-type]
        )


def _lines_of(account: Account, track: str, names: Mapping[str, str] | None) -> Lines:
    timeline = account.timeline
    if timeline is None:
        return {}
    found = timeline.lines(track)
    shown = names if names is not None else {name: name for name in found}
    return {
        shown[name]: (found[name], timeline.step_s)
        for name in shown
        if name in found and any(found[name])
    }


def throughput(times: Times) -> Section:
    """Rows and tokens a second."""
    rows, tokens = times.lines("rows", {"rows": "rows"}), times.lines("tokens")
    blocks: list[Block] = []
    if rows:
        blocks.append(Drawn(times.plot("rows", "Rows answered", rows, "rows a second")))
    if tokens:
        blocks.append(Drawn(times.plot("tokens", "Tokens", tokens, "tokens a second")))
    failed = times.lines("failed", {"failed": "failed rows"})
    if failed:
        blocks.append(Drawn(times.plot("failed", "Rows that failed", failed, "rows a second")))
    if not blocks:
        blocks.append(Text(_nothing(times.account), "quiet"))
    blocks += [
        Text(_pause(pause.at, pause.seconds)) for pause in times.account.history.pauses()[:5]
    ]
    return Section("throughput", "Throughput over time", blocks)


def _pause(at: float, seconds: float) -> str:
    return f"After {duration(at)} of work nobody worked for {duration(seconds)}; the axis leaves that out (dashed line)."


def _nothing(account: Account) -> str:
    if account.num_done and not account.starts:
        return "No events lie at the output: nothing is known of when its rows were answered."
    return TOO_SHORT if account.num_done else "No row has been answered yet."


def where_time_went(times: Times) -> Section:
    """Seats and stations."""
    account = times.account
    lasts = [start.last for start in account.starts if start.last is not None]
    blocks: list[Block] = []
    if not lasts:
        blocks.append(Text(_nothing(account), "quiet"))
        return Section("time", "Where the time went", blocks)
    starting = sum(start.engine_start_s for start in account.starts)
    empty, tail = sum(one.empty_s for one in lasts), sum(one.tail_s for one in lasts)
    asked = sum(one.seconds for one in lasts)
    lead = sum(one.seconds - one.active_s for one in lasts if one.active_s)
    published = sum(s.published.seconds for s in account.starts if s.published is not None)
    parts = [
        ("engine starting", starting, 0),
        ("first rows read and planned", lead, 4),
        ("engine at work, all its seats taken", max(0.0, asked - lead - tail - empty), 1),
        ("seats empty while rows were left", empty, 2),
        ("the last rows: none was left to give", tail, 3),
        ("results written after the last answer", published, 5),
    ]
    whole = sum(seconds for _, seconds, _ in parts) or 1.0
    told = [
        (name, s, f"{duration(s)}, {numbers.share(s / whole)}", style)
        for name, s, style in parts
    ]
    blocks.append(stack("seats", "Time of the workers", told))
    blocks += _pace(account, asked - lead, empty, tail)
    blocks += _stations(account)
    lines = times.lines("in_flight")
    if lines:
        title = "Rows that the engine had"
        blocks.append(
            Drawn(times.plot("in_flight", title, lines, "rows", shown=numbers.amount))
        )
    waiting = times.lines("waiting", WAITING)
    if waiting:
        title = "Rows that waited before a station"
        blocks.append(Drawn(times.plot("waiting", title, waiting, "rows")))
    return Section("time", "Where the time went", blocks)


WAITING = {
    "measure": "to be tokenised",
    "feed": "to be given to the engine",
    "engine": "in the engine, not begun",
    "write": "to be written",
    "copies": "for the row they copy",
}


def _pace(account: Account, asked: float, empty: float, tail: float) -> list[Block]:
    """What it waited for most, and the numbers that rests on; of runs of before, by the seats alone."""
    verdict = account.verdict
    if verdict is not None and verdict.station:
        rows = [
            [name.replace("_", " "), _sign(name, v)]
            for name, v in verdict.signs.items()
            if v >= 0
        ]
        caption = "What the verdict rests on"
        return [
            Text(f"Verdict: {verdict.line()}."),
            Listed(caption, Table(["sign", "value"], rows), is_hidden=True),
        ]
    share = min(1.0, empty / max(asked - tail, 1e-9))
    taken = f"While rows were left to give, {numbers.share(1 - share)} of the engine's seats were taken"
    if share < SMALL:
        return [Text(f"{taken}: the engine set the pace, and more speed has to come from it.")]
    return [Text(f"{taken}: what comes before the engine did not keep up with it.")]


def _sign(name: str, value: float) -> str:
    return numbers.share(value) if name.endswith("_share") else numbers.amount(value)


STATIONS = {
    "read": "read and validate",
    "measure": "tokenise",
    "plan": "plan",
    "feed": "feed the engine",
    "write": "write outcomes",
    "keep": "commit and keep",
}


def _stations(account: Account) -> list[Block]:
    """What the thread of each station did."""
    sums: dict[str, tuple[float, float, float]] = {}
    for start in account.starts:
        for name, stage in (start.last.stages if start.last is not None else {}).items():
            worked, starved, blocked = sums.get(name, (0.0, 0.0, 0.0))
            sums[name] = (
                worked + stage.worked_s,
                starved + stage.starved_s,
                blocked + stage.blocked_s,
            )
    if not sums:
        return [Text(_unknown(account, "what each station of rowmill did"), "quiet")]
    rows = [
        [STATIONS.get(name, name), *(duration(seconds) for seconds in sums[name])]
        for name in (*STATIONS, *(sums.keys() - STATIONS.keys()))
        if name in sums
    ]
    heads = ["station", "worked", "waited for rows", "waited for room behind it"]
    return [Listed("Stations of rowmill, a thread each", Table(heads, rows))]


def gpu(times: Times) -> Section:
    """Use, memory and power of GPUs."""
    blocks: list[Block] = []
    for track, title, y_label, more in (
        ("gpu_use", "GPU use", "% of the time", _PERCENT),
        ("gpu_inside", "Inside the GPU", "% of what there is", _PERCENT),
        ("gpu_memory", "GPU memory", "GiB", _GIB),
        ("gpu_power", "GPU power", "watts", {}),
    ):
        lines = times.lines(track)
        if lines:
            blocks.append(Drawn(times.plot(track, title, lines, y_label, **more)))
    if not blocks:
        blocks.append(Text(_no_gpu(times.account), "quiet"))
    return Section("gpu", "GPU use and memory", blocks)


_PERCENT: dict[str, object] = {"shown": numbers.share, "unit": PERCENT, "top": 1.0}
_GIB: dict[str, object] = {"shown": numbers.size, "unit": GIB}


def _unknown(account: Account, what: str) -> str:
    """Why nothing is told of something."""
    if account.has_samples:
        return f"Nothing is known of {what} yet."
    if account.starts:
        return f"Nothing is known of {what}: this run was written by a version of rowmill that did not count it."
    return f"Nothing is known of {what}: no events lie at the output."


def _no_gpu(account: Account) -> str:
    if account.ready is None:
        return _unknown(account, "GPUs")
    names = [name for s in account.starts if s.ready is not None for name in s.ready.gpus]
    if names:
        return f"The driver of {names[0]} told nothing of its use."
    return "The workers of this run had no GPU."


def kv_cache(times: Times) -> Section:
    """Use of the KV cache, rows in the engine, hits."""
    blocks: list[Block] = []
    use = times.lines("kv_use")
    if use:
        blocks.append(
            Drawn(times.plot("kv_use", "KV cache in use", use, "% of the cache", **_PERCENT))
        )
    rows = times.lines("engine_rows")
    if rows:
        blocks.append(Drawn(times.plot("engine_rows", "Rows inside the engine", rows, "rows")))
    last = [s.last.engine for s in times.account.starts if s.last is not None]
    preempted = sum(engine.get("preemptions", 0.0) for engine in last)
    if preempted:
        told = f"{numbers.whole(preempted)} rows gave way for want of KV cache and were computed again."
        blocks.append(
            Text(f"{told} Fewer seats, or more memory for the cache, avoid that.", "bad")
        )
    if not blocks:
        blocks.append(Text("The engine told nothing of a KV cache.", "quiet"))
    return Section("kv", "KV cache", blocks)


def prefix_hits(times: Times) -> Section:
    """Prompt tokens that were found in the cache, against what could be."""
    account, status = times.account, times.account.status
    blocks: list[Block] = []
    rate = status.cached_tokens / status.prompt_tokens if status.prompt_tokens else 0.0
    forecast = account.forecast
    if status.cached_tokens:
        told = f"{numbers.share(rate)} of the prompt tokens were found in the cache"
        blocks.append(Text(f"{told} ({numbers.whole(status.cached_tokens)} tokens)."))
    else:
        blocks.append(
            Text("No prompt token was found in a cache, or the engine told of none.", "quiet")
        )
    lines = times.lines("hit_rate")
    bound = forecast.hit_rate_bound if forecast is not None else 0.0
    if lines:
        timeline = account.timeline
        if bound and forecast is not None and timeline is not None:
            for name, rate_said in (
                ("the plan's forecast", forecast.hit_rate),
                ("bound: room for all", bound),
            ):
                lines[name] = ([rate_said] * timeline.number, timeline.step_s)
        title = "Prompt tokens found in the cache"
        blocks.append(
            Drawn(times.plot("hit_rate", title, lines, "% of prompt tokens", **_PERCENT))
        )
    if bound:
        blocks.append(
            Text(
                f"With room for all, any order would find {numbers.share(bound)}: the run got"
                f" {numbers.share(min(rate / bound, 1.0))} of that bound."
            )
        )
    else:
        blocks.append(Text(_no_bound(account), "quiet"))
    if account.planned is not None:
        rows = [[name, reason] for name, reason in account.planned.levers]
        blocks.append(
            Listed(
                "What the plan said of each way to save work",
                Table(["lever", "verdict"], rows),
                is_prose=True,
            )
        )
    return Section("hits", "Prefix cache: hits against the bound", blocks)


def _no_bound(account: Account) -> str:
    if account.planned is not None and account.planned.forecast:
        return "The plan's bound stands in its forecast, in words: " + " ".join(
            account.planned.forecast
        )
    return "There is no bound to hold this against: the plan forecasts only for a GPU that is here or named by `plan.gpu`."


def machine(times: Times) -> Section:
    """Processors and memory of the workers' machines."""
    blocks: list[Block] = []
    cpu = times.lines("cpu")
    if cpu:
        cores = [s.began.cores for s in times.account.starts if s.began is not None]
        had = f" of {max(cores):g} in each worker's reach" if cores else ""
        blocks.append(Drawn(times.plot("cpu", "Processors at work", cpu, f"cores{had}")))
    memory = times.lines("memory")
    if memory:
        blocks.append(Drawn(times.plot("memory", "Memory", memory, "GiB", **_GIB)))
    for track, title in (("disk", "Disk"), ("net", "Network, the loopback left out")):
        lines = times.lines(track)
        if any((value or 0.0) > LEAST_RATE for told, _ in lines.values() for value in told):
            blocks.append(
                Drawn(
                    times.plot(track, title, lines, "MiB a second", shown=_rate, unit=2.0**20)
                )
            )
    if not blocks:
        blocks.append(Text(_unknown(times.account, "processors and memory"), "quiet"))
    return Section("machine", "Processors, memory, disk, network", blocks)


def _rate(bytes_s: float) -> str:
    return f"{numbers.size(bytes_s)}/s"
