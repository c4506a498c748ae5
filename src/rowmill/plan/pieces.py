"""An arranged window -> pieces that are tokenised at once: the engine has the first while the next is tokenised.

Promises: every row in one piece, in the window's order; equal texts in one.
Knows nothing of: tokenizers.
Memory: references to the window's rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowmill.rows import Request

FIRST_PIECE_CHARS, PIECE_CHARS = 1 << 17, 1 << 20
"""So long the engine waits for its first rows; the pieces that follow double up to a quarter of a second of tokenising
on few cores."""
MEAN_CHARS = 1000
"""What a row counts whose text is not made yet."""


def cut_pieces(requests: list[Request], order: Sequence[int] | None) -> list[list[Request]]:
    """An arranged window in pieces that are tokenised at once, equal texts in one.

    In file order equal texts may stand anywhere: a window with any is one piece.
    """
    if order is None:
        texts = [request.text for request in requests]
        if None in texts or len(set(texts)) < len(texts):
            return [requests]
        order = range(len(requests))
    pieces: list[list[Request]] = [[]]
    size, most = 0, FIRST_PIECE_CHARS
    before: str | None = None
    for i in order:
        request = requests[i]
        if size >= most and (request.text is None or request.text != before):
            pieces.append([])
            size, most = 0, min(2 * most, PIECE_CHARS)
        pieces[-1].append(request)
        before = request.text
        size += len(before) if before is not None else MEAN_CHARS
    return pieces
