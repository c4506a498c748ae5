"""Prompts -> Outcomes without a model: the prompt's own last tokens; fails on command. Ships to users.

Promises: the answer is a function of token ids and sampling alone: the text of the last
min(`max_tokens`, prompt) tokens, `length` where that cuts, else `stop`.
Knows nothing of: weights, networks.
Memory: the rows it holds. Time: about 1 us a row with the `bytes` tokenizer and no option set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np

from rowmill.config import EngineConfig
from rowmill.engines.echo_rows import EchoRows
from rowmill.engines.echo_script import EchoOptions
from rowmill.engines.options import mistakes, parse
from rowmill.engines.protocol import Feed, Placement, Replica
from rowmill.rows import Ids, Limits, Outcome, Prompts, Sampling

_SEATS = 4096
_HONOURED = (
    *("n", "choices", "schema", "regex", "return_token_ids", "ignore_eos", "top_k", "min_p"),
)
"""It repeats what the prompt says, whatever `schema` and `regex` ask: what is made of such answers can be tried."""
_SLOW_S = 5
_NO_CHOICES: list[object] = []

Texts = Callable[[Ids, list[int], list[int]], list[str]]

KINDS = frozenset(("chat", "generate", "embed", "classify", "score", "rerank"))
"""What it can be asked for."""

EFFORT = frozenset(("log", "delay_s", "faults", "replicas", "start_s"))
"""Settings that change no answer: a run may be resumed with others."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each."""
    found = mistakes(EchoOptions, engine)
    if engine.classify is not None and not engine.classify.names:
        found.append(
            "`classify.labels` is missing: engine `echo` has no model whose files name classes"
        )
    return found


def declare(engine: EngineConfig) -> Limits:
    """What can be said without opening it: everything.

    Raises:
        BadJob: Mistakes in its settings.
    """
    options = parse(EchoOptions, engine)
    return Limits(
        takes="ids",
        max_model_tokens=engine.max_model_len or options.context,
        seats=engine.seats or _SEATS,
        sampling=_HONOURED,
        starts_slowly=options.start_s >= _SLOW_S,
        activation="sigmoid" if engine.score is not None else "",
        dimensions=options.dimensions if engine.embed is not None else 0,
        about="echo: the prompt's own last tokens",
    )


def place(engine: EngineConfig) -> Placement:
    """As many as the settings say."""
    number = parse(EchoOptions, engine).replicas
    return Placement(
        [Replica(engine)] * number, reason=f"{number}: given" if number > 1 else ""
    )


def open(engine: EngineConfig) -> Echo:
    """Open the echo.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: Its tokenizer cannot be opened.
    """
    return Echo(engine)


class Echo:
    """The open echo engine."""

    def __init__(self, engine: EngineConfig) -> None:
        self.limits = declare(engine)
        options = parse(EchoOptions, engine)
        time.sleep(options.start_s)
        self._rows = EchoRows(engine, options, self.limits.seats)
        self._delay_s = options.delay_s
        is_bytes = (engine.tokenizer or "bytes") == "bytes"
        self._texts = numbers_as_texts if options.answer == "numbers" else bytes_as_texts
        is_text = engine.is_asked_for_texts
        self._is_plain = (
            is_text and options.is_plain and (is_bytes or options.answer == "numbers")
        )

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        if not self._is_plain:
            yield from self._rows.run(feed, seats=self.limits.seats, delay_s=self._delay_s)
            return
        while (prompts := feed.take(wait=True)) is not None:
            if all(map(_is_plain, prompts.samplings)):
                yield echo_batch(prompts, self._texts)
            else:
                yield self._rows.answer_all(prompts)

    def close(self) -> None:
        """Free what is held."""
        self._rows.close()


def echo_batch(prompts: Prompts, texts_of: Texts) -> list[Outcome]:
    """Answer a batch at once."""
    began = time.monotonic()
    stops = prompts.stops
    lengths = stops - prompts.starts()
    asked = np.array(prompts.max_tokens, dtype=np.int64)
    counts = np.where(asked > 0, np.minimum(asked, lengths), lengths)
    reasons = ["length" if cut else "stop" for cut in (counts < lengths).tolist()]
    texts = texts_of(prompts.ids, (stops - counts).tolist(), stops.tolist())
    seconds = round(time.monotonic() - began, 6)
    return list(
        map(  # positional, in the order of Outcome's fields: half the time of names
            Outcome,
            prompts.keys,
            repeat("ok"),
            texts,
            reasons,
            repeat(_NO_CHOICES),
            lengths.tolist(),
            repeat(0),
            counts.tolist(),
            prompts.max_tokens,
            repeat(1),
            repeat(seconds),
        )
    )


def bytes_as_texts(ids: Ids, starts: list[int], stops: list[int]) -> list[str]:
    """Stretches of byte tokens as text; a character that is cut is left out."""
    whole = ids.astype(np.uint8).tobytes()
    if whole.isascii():
        text = whole.decode("ascii")
        return [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
    return [
        whole[start:stop].decode("utf-8", "ignore")
        for start, stop in zip(starts, stops, strict=True)
    ]


def numbers_as_texts(ids: Ids, starts: list[int], stops: list[int]) -> list[str]:
    """Stretches of tokens as their numbers."""
    numbers = list(map(str, ids.tolist()))
    return [" ".join(numbers[start:stop]) for start, stop in zip(starts, stops, strict=True)]


def _is_plain(sampling: Sampling) -> bool:
    """Whether one text, whole, is all that is asked for."""
    return not (
        sampling.choices or sampling.stop or sampling.return_token_ids or sampling.n > 1
    )
