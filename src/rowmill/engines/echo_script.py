"""Options of the echo engine: how it is told to be slow, to fail, to die.

Promises: what a script does to a row depends on the row's text and on how often the row was started,
which the log file counts over restarts.
Knows nothing of: how answers are made.
Memory: a number a key in the log, where a fault counts.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rowmill.engines.options import Options

Action = Literal["error", "die", "hang", "transient", "freeze", "oom"]

ENDS = ("die", "freeze", "oom")
"""What happens before a row is answered, and to all rows in flight."""


class Fault(BaseModel):
    """What happens to rows whose prompt contains a text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contains: str
    """Text in the prompt."""
    action: Action
    """`error`: refused. `die`: the process is killed. `hang`: never answered. `transient`: fails `times`, then answers.
    `freeze`: the whole engine stands still. `oom`: it runs out of memory."""
    times: int = Field(default=0, ge=0)
    """So often for one row, then it is answered; 0: always. For what ends the process it needs `log`, which outlives it."""
    above_seats: int = Field(default=0, ge=0)
    """Only where the engine has more seats than this."""


class Longer(BaseModel):
    """Rows whose prompt contains a text answer with more tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contains: str
    """Text in the prompt."""
    times: int = Field(gt=0)
    """The answer is said so often, up to `max_tokens`."""


class EchoOptions(Options):
    """Settings of engine `echo`."""

    log: str = ""
    """File that gets a line with the row's key for each row started, before it is answered."""
    delay_s: float = Field(default=0.0, ge=0)
    """Seconds that a row takes; rows in seats take them at the same time."""
    faults: tuple[Fault, ...] = ()
    """Rows that fail, first match wins."""
    longer: tuple[Longer, ...] = ()
    """Rows whose answers are longer than what the prompt says, first match wins: to try what a run makes of that."""
    answer: Literal["text", "numbers"] = "text"
    """The last tokens as text, or as their numbers, for which no tokenizer is opened: to measure everything else."""
    start_s: float = Field(default=0.0, ge=0)
    """Seconds that its start takes; from 5 on it says so, as engines do that load a model."""
    dimensions: int = Field(default=8, gt=0)
    """Numbers in a vector, where it is to embed; they are drawn from the prompt's tokens."""
    replicas: int = Field(default=1, gt=0)
    """So many echoes side by side."""
    context: int = Field(default=32768, gt=0)
    """Most tokens of prompt and answer together, where `max_model_len` is not set."""

    @model_validator(mode="after")
    def _counted_deaths_need_a_log(self) -> EchoOptions:
        if not self.log and any(f.action in ENDS and f.times for f in self.faults):
            msg = "a fault that ends the process and has `times` needs `log`, where starts are counted"
            raise ValueError(msg)
        if (self.faults or self.longer) and self.answer == "numbers":
            msg = '`faults` and `longer` look at texts: they need `answer = "text"`'
            raise ValueError(msg)
        return self

    @property
    def is_plain(self) -> bool:
        """True where nothing is to be done but to answer."""
        return not (self.log or self.delay_s or self.faults or self.longer)


class StartLog:
    """Counts how often each row was started, in a file that outlives the process."""

    def __init__(self, path: str, *, is_counting: bool) -> None:
        self._fd = -1
        self._starts: Counter[int] = Counter()
        self._is_counting = is_counting
        if not path:
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if is_counting:
            self._starts.update(map(int, Path(path).read_bytes().split()))

    def started(self, keys: list[int]) -> list[int]:
        """Write down rows that start.

        Returns:
            How often each was started, this time included; zeros where nothing counts.
        """
        if self._fd >= 0:
            os.write(self._fd, "".join(f"{key}\n" for key in keys).encode("ascii"))
        if not self._is_counting:
            return [0] * len(keys)
        self._starts.update(keys)
        return [self._starts[key] for key in keys]

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
