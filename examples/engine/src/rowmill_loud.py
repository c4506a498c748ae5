"""An engine for rowmill, outside of it: it says the end of the prompt again, in capital letters.

What a real one does is here: settings of its own, limits, rows taken as there is room and answered as they are ready,
bad rows that fail alone, an end. A token is a byte, so a job needs `tokenizer = "bytes"`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from pydantic import Field

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.options import Options, mistakes, parse
from rowmill.engines.protocol import Feed
from rowmill.rows import Choice, Ids, Limits, Outcome, Prompts, Sampling

EFFORT = frozenset(("pause_s",))
"""Settings that change no answer: a run may be resumed with others."""


class LoudOptions(Options):
    """Settings of engine `loud`. A docstring under a field says what it is; an unknown setting is refused by name."""

    mark: str = "!"
    """What stands behind an answer that was not cut."""
    pause_s: float = Field(default=0.0, ge=0)
    """Seconds that a step takes."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings, a sentence each; asked by `rowmill check`, before any row is read."""
    return mistakes(LoudOptions, engine)


def declare(engine: EngineConfig) -> Limits:
    """What can be said before the engine is open: nothing is loaded here."""
    parse(LoudOptions, engine)
    return Limits(
        takes="ids",
        max_model_tokens=engine.max_model_len or 4096,
        seats=engine.seats or 8,
        # Beyond temperature, top_p, max_tokens, stop and seed, which all engines take. What is not named is refused.
        sampling=("n", "ignore_eos", "return_token_ids"),
        about="loud: the end of the prompt, in capital letters",
    )


def open(engine: EngineConfig) -> Loud:
    """Open it, in a process of its own; a library that is driven is imported here, not above."""
    return Loud(declare(engine), parse(LoudOptions, engine))


class Loud:
    """The open engine."""

    def __init__(self, limits: Limits, options: LoudOptions) -> None:
        self.limits = limits
        self._options = options

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """Take rows, answer them, until no more will come.

        This one has nothing in hand when it asks for more, so it may wait. An engine that works on rows meanwhile
        asks with `wait=False`, and gets empty Prompts where there are none now.
        """
        while (prompts := feed.take(wait=True)) is not None:
            time.sleep(self._options.pause_s)
            yield self.answers(prompts)

    def answers(self, prompts: Prompts) -> list[Outcome]:
        """One outcome a row."""
        began = time.monotonic()
        outcomes = []
        for i, ids in enumerate(prompts.row_ids()):
            sampling = prompts.samplings[prompts.sampling_of[i]]
            row = (prompts.keys[i], ids, prompts.max_tokens[i])
            try:
                outcomes.append(self.answer(*row, sampling, began))
            except errors.RowError as error:
                outcomes.append(failed(*row, error, began))
        return outcomes

    def answer(
        self, key: int, ids: Ids, max_tokens: int, sampling: Sampling, began: float
    ) -> Outcome:
        """The answer of one row.

        Raises:
            RowError: It cannot be answered; that is an outcome too.
        """
        if len(ids) >= self.limits.max_model_tokens:
            limit = self.limits.max_model_tokens
            raise errors.TooLong(
                prompt_tokens=len(ids), asked_tokens=max_tokens, limit_tokens=limit
            )
        if len(ids) and ids.max() > 255:
            reason = f"token id {ids.max()}, expected ids below 256"
            raise errors.InvalidRow(reason=reason)
        text, reason = self.said(ids, max_tokens, sampling)
        choices = [
            Choice(
                index=index,
                text=text,
                finish_reason=reason,
                token_ids=list(text.encode()) if sampling.return_token_ids else None,
            )
            for index in range(sampling.n)
        ]
        return Outcome(
            key=key,
            status="ok",
            text=text,
            finish_reason=reason,
            choices=choices if sampling.n > 1 or sampling.return_token_ids else [],
            prompt_tokens=len(ids),
            output_tokens=len(text.encode()) * sampling.n,
            max_tokens=max_tokens,
            attempts=1,
            seconds=time.monotonic() - began,
        )

    def said(self, ids: Ids, max_tokens: int, sampling: Sampling) -> tuple[str, str]:
        """The text, and why it ends."""
        whole = bytes(ids.tolist()).decode("utf-8", "ignore").upper() + self._options.mark
        cut = whole.encode()[: max_tokens or None].decode("utf-8", "ignore")
        reason = "length" if len(cut) < len(whole) else "stop"
        for stop in sampling.stop:
            before, found, _ = cut.partition(stop)
            cut, reason = (before, "stop") if found else (cut, reason)
        return cut, reason

    def close(self) -> None:
        """Free what is held: nothing."""


def failed(
    key: int, ids: Ids, max_tokens: int, error: errors.RowError, began: float
) -> Outcome:
    """The outcome of a row that gets no answer."""
    return Outcome(
        key=key,
        status="error",
        prompt_tokens=len(ids),
        max_tokens=max_tokens,
        attempts=1,
        seconds=time.monotonic() - began,
        error_kind=error.kind,
        error=str(error),
    )
