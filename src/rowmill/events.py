"""What happens in a run, as frozen records that listeners (progress, logs) are told.

Promises: an event is complete in itself; a listener that missed the one before is not misled.
Knows nothing of: files, engines, who listens.
Memory: none kept; an event is as good as gone once every listener saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

Listener = Callable[[object], None]
"""Told of every event, from the thread in which it happens; must not block and must not raise."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person should know now."""

    text: str


MAX_NAMED_FILES = 20
"""Files of an input that are told by name; the others are counted, and all of them stand in `run.json`."""


def files_line(names: Sequence[str], num_files: int) -> str:
    """The files of an input in words."""
    named = [name if name.isprintable() else ascii(name)[1:-1] for name in names]
    more = num_files - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What is about to be done: told once, after the first rows were checked and before the engine starts."""

    engine: str
    files: int
    names: list[str] = []
    """Of the first files."""
    lines_in: int
    """Lines of the input that belong to the run; blank ones are no rows."""
    resumed: int
    """Rows that earlier starts finished."""
    checked: int
    """Rows read, measured and planned so far."""
    bad: int
    """Rows among them that will not be asked."""
    prompt_tokens: int
    """Of the rows to ask among them."""
    levers: list[tuple[str, str]]
    """(way to save work, what it does here)."""
    forecast: list[str] = []
    """How long it will take, and what it rests on; empty where that cannot be said."""
    said: Forecast | None = None
    """The same in figures."""
    reasons: dict[str, str]
    """Derived setting -> value and why."""
    notes: list[str] = []
    """What is remarkable of the input: files passed over, columns that differ."""

    def lines(self) -> Iterator[str]:
        """The plan for people."""
        resumed = f", {self.resumed:,} rows done before" if self.resumed else ""
        files = f"{self.files:,} file{'' if self.files == 1 else 's'}"
        yield f"engine  {self.engine}"
        yield f"input   {self.lines_in:,} lines in {files}{resumed}"
        if self.names and (self.files > 1 or self.notes):
            yield f"files   {files_line(self.names, self.files)}"
        yield from (f"note    {note}" for note in self.notes)
        yield (
            f"first   {self.checked:,} rows checked: {self.bad:,} bad,"
            f" {self.prompt_tokens:,} prompt tokens to ask"
        )
        yield from (f"plan    {name}: {what}" for name, what in self.levers)
        yield from (f"time    {text}" for text in self.forecast)
        yield from (f"set     {name}: {why}" for name, why in self.reasons.items())


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """A worker begins; written first, so that several starts can be put on one axis."""

    time: str
    """Wall clock, ISO 8601, UTC; all else is told in seconds since."""
    host: str
    pid: int
    cores: float
    """That it may use."""
    memory_bytes: int
    """Of the machine, or of its control group."""
    version: str
    """Of rowmill."""
    tokenizer_threads: int = 0
    """That the tokenizers' library was told to use; 0: as many as there are cores."""


class EngineReady(msgspec.Struct, frozen=True, kw_only=True):
    """The engine is open: what it is like."""

    name: str
    about: str
    """Engine, version and model in words."""
    start_s: float
    """How long its start took."""
    seats: int
    """Of all replicas together."""
    replicas: int = 1
    step_tokens: int = 0
    """Most tokens of one step of one replica; 0: not known, or it makes no steps."""
    kv_tokens: int = 0
    """Of all replicas together; 0: not known."""
    gpus: list[str] = []
    """Names of the GPUs that this worker may use."""


class TaskBegan(msgspec.Struct, frozen=True, kw_only=True):
    """A task is this worker's now."""

    task: int
    resumed: int
    """Rows of it that an earlier holder answered."""


class TaskEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A task is committed, by this worker."""

    task: int
    rows: int
    """Answered by this holder, as all that follows."""
    ok: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    """Since it was claimed; tasks overlap."""
    tokens_s: float


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Results are written."""

    parts: int
    seconds: float
    """Since the last outcome."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the run is, now. Rows copied over from an earlier run of this output count as done."""

    done: int
    """Rows with an outcome, of either fate."""
    ok: int
    failed: int
    total: int
    """Rows to end up with; 0 where the input is not counted yet."""
    in_flight: int = 0
    """Rows that the engine holds."""
    prompt_tokens: int = 0
    """Over the rows answered in this process."""
    output_tokens: int = 0
    seconds: float = 0.0
    """Since this process took its first row; the engine's start is not in it."""
    resumed: int = 0
    """Rows among `done` that an earlier process of this run had finished; left out of rates."""
    queues: dict[str, float] = {}
    """Rows waiting before each station, by its name; and what the engine counts of itself (`engine_...`)."""
    work_done: float = 0.0
    """Prompts and answers of the rows answered in this process, in tokens of a prompt: an answer's count three times."""
    work_left: float = 0.0
    """The same of the rows that are left, as far as can be said; 0 where it cannot."""
    work_error: float = 0.0
    """Standard error of that."""
    hour_price: float = 0.0
    """Of all GPUs for an hour."""
    cost_left: float = 0.0
    """What an endpoint will ask for the tokens that are left."""
    workers: int = 0
    """Workers that the numbers are sums over; 0 where there is one, which tells them itself."""
    cost: float = 0.0
    """So far, at the prices of `[run]`; 0 where none is given."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waited for most, in words."""

    station: str
    """One of `diagnose.STATIONS`; empty where the run was too short to tell."""
    says: str
    """What was seen, in a sentence."""
    remedy: str = ""
    """What to do about it; empty where nothing is wrong."""
    is_well: bool = False
    """The engine computes as fast as it can: nothing before or behind it is in its way."""
    signs: dict[str, float] = {}
    """The numbers it rests on, by their names in docs/verdicts.md."""

    def line(self) -> str:
        """All of it."""
        return f"{self.says}; {self.remedy}" if self.remedy else self.says


class Forecast(msgspec.Struct, frozen=True):
    """What was said of a run before it began, in seconds."""

    seconds: float
    low_s: float
    high_s: float
    ideal_s: float
    """That no schedule can beat."""
    hit_rate: float = 0.0
    """Share of prompt tokens that the planned order finds in the cache."""
    hit_rate_bound: float = 0.0
    """Share that any order finds, with room for all."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: what `rowmill run` prints, `--json` writes and `rowmill.run` returns."""

    total: int
    ok: int
    failed: int
    not_done: int
    """Rows without an outcome: the same command goes on with them."""
    copied: int = 0
    """Rows among `ok` that took the answer of an equal row."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    asked: int = 0
    """Rows that got their outcome in this start."""
    new_tokens: int = 0
    """Prompt and output tokens of those."""
    truncated: int = 0
    """Rows among `ok` whose answer was cut by `max_tokens` or the context (`finish_reason` is `length`)."""
    violations: int = 0
    """Rows among `ok` with an answer that breaks its `schema`, `regex` or `choices`."""
    seconds: float = 0.0
    """From the first row's entry to the last outcome, without the engine's start."""
    engine_start_s: float = 0.0
    cost: float = 0.0
    """What this start and those before it cost, at the prices of `[run]`."""
    forecast: Forecast | None = None
    """What was said before; None where nothing was."""
    output: str = ""
    """Where the run lies, as the user gave it."""
    results: list[str] = []
    """Published files in order, by their names under `output`."""
    sink: str = ""
    """What became of loading the vectors, in words; empty where the job names no vector store."""
    not_loaded: list[tuple[str, str]] = []
    """(FILE:LINE, why) of the first rows that the store did not get."""
    errors: list[tuple[str, str, int]] = []
    """(kind, sentence of one of them, rows), most frequent first."""
    retries: list[tuple[str, int]] = []
    """Requests of this start that failed in passing and were made again: (cause, number)."""
    stopped: str = ""
    """Why the run ended before its input did; empty where it did not."""
    verdict: Verdict | None = None
    """What this start waited for most; None where nothing was asked, or several workers shared the run."""
    exit_code: int = 0
