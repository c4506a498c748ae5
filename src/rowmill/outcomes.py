"""Outcomes of many rows as columns: what crosses from the engine's process to the disk without being unpacked.

Promises: a line is the outcome in JSON, its key first, ended by a line feed, with no other in it;
the columns say of each line what counting needs.
Knows nothing of: files, sockets.
Memory: 21 bytes a row beside the lines.
Source: measured, rows with 16 tokens of text: unpacking, counting and encoding again 2.4 us a row, this 0.4 us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.rows import Outcome

FAILED, TRUNCATED, COPIED, VIOLATED = 1, 2, 4, 8
NEWLINE = 10
LONG_BYTES = 1024
"""Of a line in the mean."""
KEY_START = len(b'{"key":')

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Outcome)
decode = _decoder.decode
"""One line -> its Outcome. Raises: msgspec.DecodeError."""


class Outcomes(msgspec.Struct):
    """Outcomes of R rows.

    Shapes: `keys` R uint64; `marks` R uint8; `tokens` 3 x R uint32: prompt, cached, output.
    """

    keys: npt.NDArray[np.uint64]
    marks: npt.NDArray[np.uint8]
    """FAILED, TRUNCATED, COPIED, VIOLATED, or none of them."""
    tokens: npt.NDArray[np.uint32]
    lines: bytes
    """R lines, one behind the other."""

    def __len__(self) -> int:
        return len(self.keys)

    def stops(self) -> npt.NDArray[np.int64]:
        """One past each line's last byte; R int64."""
        if len(self.lines) < LONG_BYTES * len(self):
            return np.flatnonzero(np.frombuffer(self.lines, np.uint8) == NEWLINE) + 1
        # Lines with vectors: to look for the next end is quicker than to look at each byte.
        ends, at, find = [], 0, self.lines.find
        while at := find(b"\n", at) + 1:
            ends.append(at)
        return np.array(ends, np.int64)

    def unpack(self) -> list[Outcome]:
        """All of them, as records."""
        return [decode(line) for line in self.lines.split(b"\n")[:-1]]

    def parted(self, bounds: Sequence[int]) -> Iterator[Outcomes]:
        """The rows between each bound and the next, lines cut out in one piece; ends are looked for once."""
        ends = np.concatenate(([0], self.stops()))
        for start, stop in pairwise(bounds):
            yield Outcomes(
                self.keys[start:stop],
                self.marks[start:stop],
                self.tokens[:, start:stop],
                self.lines[int(ends[start]) : int(ends[stop])],
            )

    def take(self, rows: Sequence[int]) -> Outcomes:
        """The given rows, in the given order."""
        lines = self.lines.split(b"\n")
        taken = b"".join([lines[i] + b"\n" for i in rows])
        at = np.asarray(rows, np.int64)
        return Outcomes(self.keys[at], self.marks[at], self.tokens[:, at], taken)


def pack(outcomes: Sequence[Outcome]) -> Outcomes:
    """Records -> columns and lines."""
    number = len(outcomes)
    marks = [
        (o.status != "ok") * FAILED
        | (o.finish_reason == "length") * TRUNCATED
        | (o.copied_from is not None) * COPIED
        | bool(o.violation or (o.choices and is_violated(o))) * VIOLATED
        for o in outcomes
    ]
    tokens = np.empty((3, number), np.uint32)
    tokens[0] = [o.prompt_tokens for o in outcomes]
    tokens[1] = [o.cached_tokens for o in outcomes]
    tokens[2] = [o.output_tokens for o in outcomes]
    return Outcomes(
        keys=np.array([o.key for o in outcomes], np.uint64),
        marks=np.array(marks, np.uint8),
        tokens=tokens,
        lines=_encoder.encode_lines(outcomes),
    )


def is_violated(outcome: Outcome) -> bool:
    """Whether any answer of a row breaks what it is held to."""
    if outcome.violation is not None:
        return True
    return any(choice.violation is not None for choice in outcome.choices)


def dimensions_of(outcomes: Iterable[Outcome]) -> int:
    """Numbers in each vector, by the first that is there; 0 where none is."""
    for outcome in outcomes:
        vector = outcome.embedding or next((c.embedding for c in outcome.chunks or ()), b"")
        if vector:
            return len(vector) // 4
    return 0


def join(parts: Sequence[Outcomes]) -> Outcomes:
    """Several into one, in order."""
    if len(parts) == 1:
        return parts[0]
    return Outcomes(
        keys=np.concatenate([part.keys for part in parts]),
        marks=np.concatenate([part.marks for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts], axis=1),
        lines=b"".join([part.lines for part in parts]),
    )


def key_of(line: bytes) -> int:
    """Key of a line that was written by us."""
    return int(line[KEY_START : line.index(b",", KEY_START)])
