"""(name, seed, rows) -> a JSON Lines file of prompts with exactly known numbers of tokens.

Promises: the same arguments give the same bytes; another seed shares no text, so that no cache carries over;
a row has `id`, `prompt`, `max_tokens`, `ignore_eos`, and is read by rowmill as it is.
Knows nothing of: engines.
Memory: the file's lines.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from rowmill import errors
from rowmill.bench.records import Work
from rowmill.bench.words import Words

ROWS_A_PREFIX, QUESTIONS_A_DOCUMENT, SUBJECTS = 10, 16, 57
MAX_CHECKED_ROWS = 256
SIGMA = 1.0
"""Of logarithms of lengths: a long tail, as of real prompts; the longest of 4,000 is 20 times the mean."""
MIN_TOKENS = 4

Draw = np.random.Generator


class Lengths(msgspec.Struct, frozen=True):
    """Tokens of each row: of a beginning that it shares, of its own part, of its answer."""

    shared: list[int]
    """Tokens of each shared beginning."""
    beginning_of: list[int]
    """Number of the beginning of each row; empty: there is none."""
    own: list[int]
    answers: list[int]
    parts_of: list[list[int]] = []
    """In place of `beginning_of`: numbers of the shared parts that each row begins with, in their order."""


def prefixes(draw: Draw, rows: int) -> Lengths:
    """A tenth as many beginnings of 1,000 tokens as rows, own part 40, answer 16, shuffled."""
    beginnings = np.arange(rows) // ROWS_A_PREFIX
    draw.shuffle(beginnings)
    shared = [1000] * (-(-rows // ROWS_A_PREFIX))
    return Lengths(shared, beginnings.tolist(), [40] * rows, [16] * rows)


def short(draw: Draw, rows: int) -> Lengths:
    """41 tokens, answers of 1 to 4: labels and scores."""
    return Lengths([], [], [41] * rows, draw.integers(1, 5, rows).tolist())


def mixed(draw: Draw, rows: int) -> Lengths:
    """Prompts of 244 tokens in the mean and 6,000 at most, answers of 175 and 1,500, both with a long tail."""
    own = _long_tailed(draw, rows, mean=244, most=6000)
    return Lengths([], [], own, _long_tailed(draw, rows, mean=175, most=1500))


def system(draw: Draw, rows: int) -> Lengths:
    """One beginning of 200 tokens for all, own parts of 150 in the mean, answers of 100."""
    own = _long_tailed(draw, rows, mean=150, most=2000)
    return Lengths([200], [0] * rows, own, _long_tailed(draw, rows, mean=100, most=1000))


def control(draw: Draw, rows: int) -> Lengths:
    """400 tokens that nobody shares, answers of 200: nothing to gain."""
    return Lengths([], [], [400] * rows, [200] * rows)


def tail(draw: Draw, rows: int) -> Lengths:
    """Prompts of 300, answers of 200, one in a hundred of 5,000."""
    answers = np.full(rows, 200)
    answers[draw.permutation(rows)[: -(-rows // 100)]] = 5000
    return Lengths([], [], [300] * rows, answers.tolist())


def documents(draw: Draw, rows: int) -> Lengths:
    """Sixteen questions to each document of 2,000, own part 200, answers of 100, shuffled."""
    which = np.arange(rows) // QUESTIONS_A_DOCUMENT
    draw.shuffle(which)
    shared = [2000] * (-(-rows // QUESTIONS_A_DOCUMENT))
    return Lengths(shared, which.tolist(), [200] * rows, [100] * rows)


def few_shot(draw: Draw, rows: int) -> Lengths:
    """57 subjects with examples of 600 to 2,500 tokens, 1,000 in the mean; questions of 60 to 200, answers of 1 to 5."""
    shared = np.clip(draw.lognormal(np.log(950), 0.4, SUBJECTS), 600, 2500).astype(int).tolist()
    which = draw.integers(0, SUBJECTS, rows).tolist()
    own, answers = draw.integers(60, 201, rows).tolist(), draw.integers(1, 6, rows).tolist()
    return Lengths(shared, which, own, answers)


def blend(draw: Draw, rows: int) -> Lengths:
    """Half of the rows 3,000 in and 20 out, half 200 in and 1,000 out, shuffled."""
    is_long = draw.permutation(rows) % 2 == 0
    own, answers = np.where(is_long, 3000, 200), np.where(is_long, 20, 1000)
    return Lengths([], [], own.tolist(), answers.tolist())


def one_prompt(draw: Draw, rows: int) -> Lengths:
    """One beginning of 200 for all, own parts of 100 to 500, answers of 150."""
    return Lengths([200], [0] * rows, draw.integers(100, 501, rows).tolist(), [150] * rows)


def long_tailed(draw: Draw, rows: int) -> Lengths:
    """Prompts of 300, answers log-normal with a median of 200, at most 8,192."""
    found = np.clip(np.rint(draw.lognormal(np.log(200), 1.2, rows)), MIN_TOKENS, 8192)
    return Lengths([], [], [300] * rows, found.astype(int).tolist())


COLUMNS = ((5, 3), (50, 10), (500, 150))
"""Different values, and tokens of each."""


def relational(draw: Draw, rows: int) -> Lengths:
    """Rows of a table: columns of 5, 50 and 500 values of 3, 10 and 150 tokens, one of 80 that is nobody else's; answers of 2."""
    shared: list[int] = []
    parts: list[list[int]] = [[] for _ in range(rows)]
    for most, tokens in COLUMNS:
        values = min(most, rows)
        which = draw.integers(0, values, rows) + len(shared)
        shared += [tokens] * values
        for row, number in zip(parts, which.tolist(), strict=True):
            row.append(number)
    return Lengths(shared, [], [80] * rows, [2] * rows, parts)


CHUNKS, CHUNK_TOKENS, CHUNKS_A_ROW, ZIPF = 2000, 256, 4, 1.1


def retrieved(draw: Draw, rows: int) -> Lengths:
    """Four of 2,000 chunks of 256 in any order, some far more often (fewer for few rows); a question of 40, answers of 100."""
    number_of_chunks = max(2 * CHUNKS_A_ROW, min(CHUNKS, rows // 2))
    weights = 1.0 / np.arange(1, number_of_chunks + 1) ** ZIPF
    cumulative = np.cumsum(weights / weights.sum())
    parts = []
    for _ in range(rows):
        found: list[int] = []
        while len(found) < CHUNKS_A_ROW:
            number = min(int(np.searchsorted(cumulative, draw.random())), number_of_chunks - 1)
            if number not in found:
                found.append(number)
        parts.append(found)
    return Lengths([CHUNK_TOKENS] * number_of_chunks, [], [40] * rows, [100] * rows, parts)


SAMPLES = 16


def samples(draw: Draw, rows: int) -> Lengths:
    """Each prompt of 300 sixteen times, but for its last tokens; answers of 512."""
    which = np.arange(rows) // SAMPLES
    draw.shuffle(which)
    return Lengths([296] * (-(-rows // SAMPLES)), which.tolist(), [4] * rows, [512] * rows)


def tenants(draw: Draw, rows: int) -> Lengths:
    """A quarter each of `one_prompt`, `documents`, `tail` and `few_shot`, one behind the other."""
    quarter = rows // 4
    sizes = (quarter, quarter, quarter, rows - 3 * quarter)
    some = [
        shape(draw, size)
        for shape, size in zip((one_prompt, documents, tail, few_shot), sizes, strict=True)
    ]
    shared: list[int] = []
    parts: list[list[int]] = []
    for one in some:
        begun = [[which + len(shared)] for which in one.beginning_of]
        parts += begun or [[] for _ in one.own]
        shared += one.shared
    own = [tokens for one in some for tokens in one.own]
    answers = [tokens for one in some for tokens in one.answers]
    return Lengths(shared, [], own, answers, parts)


SHAPES: dict[str, tuple[Callable[[Draw, int], Lengths], int]] = {
    "prefixes": (prefixes, 4000),
    "short": (short, 16_000),
    "mixed": (mixed, 4000),
    "system": (system, 4000),
    "control": (control, 5000),
    "tail": (tail, 5000),
    "documents": (documents, 6400),
    "few_shot": (few_shot, 14_042),
    "blend": (blend, 8000),
    "one_prompt": (one_prompt, 4000),
    "long_tailed": (long_tailed, 5000),
    "relational": (relational, 10_000),
    "retrieved": (retrieved, 4000),
    "samples": (samples, 8000),
    "tenants": (tenants, 8000),
}
"""Name -> lengths, and how many rows where nobody says."""

NUMBERED = {
    "w0": "control",
    "w1": "one_prompt",
    "w2": "tail",
    "w2b": "long_tailed",
    "w3": "documents",
    "w4": "few_shot",
    "w5": "relational",
    "w6": "blend",
    "w7": "retrieved",
    "w8": "samples",
    "w9": "tenants",
}
"""Short names of those that go together."""


def write_workload(
    name: str, path: Path, *, words: Words, seed: int, rows: int, context: int = 0
) -> Work:
    """Write a workload.

    Args:
        context: tokens of prompt and answer that the model takes; longer rows are cut to it. 0: as many as there are.

    Raises:
        ConfigError: the tokenizer joins words, or the context is smaller than what rows share.
    """
    draw = np.random.default_rng([seed, zlib.crc32(name.encode())])
    lengths = SHAPES[name][0](draw, rows)
    own, answers = _cut(lengths, words.extra, context)
    texts = _texts(lengths, own, words, draw)
    totals = [begun + count for begun, count in zip(_begun(lengths), own, strict=True)]
    step = -(-rows // MAX_CHECKED_ROWS)
    words.check(texts[::step], totals[::step])
    with path.open("w", encoding="ascii") as file:
        for number, (text, asked) in enumerate(zip(texts, answers, strict=True)):
            row = {
                "id": f"row-{number:07d}",
                "prompt": text,
                "max_tokens": asked,
                "ignore_eos": True,
            }
            file.write(json.dumps(row) + "\n")
    return Work(str(path), rows, sum(totals), sum(answers))


def _texts(lengths: Lengths, own: list[int], words: Words, draw: Draw) -> list[str]:
    def some(count: int) -> str:
        return " ".join(map(words.words.__getitem__, draw.integers(0, len(words.words), count)))

    # What the model puts around a text counts as part of it.
    if not lengths.shared:
        return [some(count - words.extra) for count in own]
    if lengths.parts_of:
        shared = [some(count) for count in lengths.shared]
        return [
            " ".join([*(shared[which] for which in parts), some(count - words.extra)])
            for parts, count in zip(lengths.parts_of, own, strict=True)
        ]
    beginnings = [some(count - words.extra) for count in lengths.shared]
    return [
        f"{beginnings[which]} {some(count)}"
        for which, count in zip(lengths.beginning_of, own, strict=True)
    ]


def _cut(lengths: Lengths, extra: int, context: int) -> tuple[list[int], list[int]]:
    """Own parts and answers that fit into the context; an answer gives way first, to half of what is free."""
    if not context:
        return lengths.own, lengths.answers
    longest = max(_begun(lengths), default=0)
    if context - longest - extra < 2 * MIN_TOKENS:
        reason = (
            f"the model takes {context} tokens and rows share {longest}; take another workload"
        )
        raise errors.ConfigError(reason=reason)
    own, answers = [], []
    for begun, mine, asked in zip(_begun(lengths), lengths.own, lengths.answers, strict=True):
        free = context - begun - extra
        answers.append(min(asked, free // 2))
        own.append(min(mine, free - answers[-1]))
    return own, answers


def _begun(lengths: Lengths) -> list[int]:
    """Tokens of each row's shared beginning."""
    if lengths.parts_of:
        return [sum(lengths.shared[which] for which in parts) for parts in lengths.parts_of]
    if not lengths.beginning_of:
        return [0] * len(lengths.own)
    return [lengths.shared[which] for which in lengths.beginning_of]


def _long_tailed(draw: Draw, rows: int, *, mean: float, most: int) -> list[int]:
    found = draw.lognormal(np.log(mean) - SIGMA**2 / 2, SIGMA, rows)
    return np.clip(np.rint(found), MIN_TOKENS, most).astype(int).tolist()  # type: ignore[no-any-return]
