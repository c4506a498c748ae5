"""Find rows of a window that must get equal answers, so that one of them is asked and the others copy it.

Promises: only greedy rows (temperature 0, one answer) are joined; equal means equal token ids (or body),
equal images and audio (by what their files hold, or their URLs), equal sampling and equal token limit,
compared by a 128-bit digest.
Memory: one hash a row of the window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

import msgspec
import xxhash

from rowmill.plan.levers import Lever
from rowmill.rows import Prompts


def find_copies(
    prompts: Prompts, policy: Literal["copy", "ask"]
) -> tuple[dict[int, list[int]], Lever]:
    """Keys of rows to ask -> keys of their equals, and the lever's verdict.

    The first of equal rows in the window is the one that is asked.
    """
    if policy == "ask":
        return {}, _verdict(reason='`plan.duplicates = "ask"`')
    greedy = [sampling.is_greedy for sampling in prompts.samplings]
    if not any(greedy):
        return {}, _verdict(
            reason="answers are drawn (temperature is not 0), equal rows may differ"
        )
    copies, saved_tokens = _equal_rows(prompts, greedy)
    saved_rows = sum(len(keys) for keys in copies.values())
    if not saved_rows:
        return {}, _verdict(reason="no gain here: no equal rows in the window")
    verdict = Lever(
        name="duplicates",
        is_used=True,
        reason=f"{saved_rows} of {len(prompts)} rows equal an earlier one",
        saved_rows=saved_rows,
        saved_tokens=saved_tokens,
    )
    return copies, verdict


def _verdict(*, reason: str) -> Lever:
    return Lever(name="duplicates", is_used=False, reason=reason)


def _equal_rows(prompts: Prompts, greedy: list[bool]) -> tuple[dict[int, list[int]], int]:
    """Group greedy rows by what they ask; tokens that need not be computed beside."""
    first_of: dict[tuple[int, int, int, bytes], int] = {}
    copies: dict[int, list[int]] = defaultdict(list)
    saved_tokens = 0
    sampling_of, max_tokens = prompts.sampling_of, prompts.max_tokens
    for i, (key, body) in enumerate(zip(prompts.keys, _bodies(prompts), strict=True)):
        if not greedy[sampling_of[i]]:
            continue
        if key in prompts.media:
            seen = "".join(f"\0{one.kind}{one.identity}" for one in prompts.media[key])
            body += seen.encode("utf-8", "surrogatepass")
        # The body itself is kept only through its 128-bit digest: a window of long prompts would double in memory.
        asked = (sampling_of[i], max_tokens[i], len(body), xxhash.xxh3_128_digest(body))
        leader = first_of.setdefault(asked, key)
        if leader != key:
            copies[leader].append(key)
            saved_tokens += len(body) // 4
    return dict(copies), saved_tokens


def _bodies(prompts: Prompts) -> Iterator[bytes]:
    """What is asked of each row: the body on the wire, else the token ids."""
    if prompts.wires:
        for field, wire in zip(prompts.wire_fields, prompts.wires, strict=True):
            yield field.encode() + wire
        return
    packed, start = prompts.ids.tobytes(), 0
    for key, stop in zip(prompts.keys, (prompts.stops * 4).tolist(), strict=True):
        pairs = prompts.pairs.get(key)
        # The same tokens may be other pairs.
        yield packed[start:stop] + (msgspec.json.encode(pairs) if pairs else b"")
        start = stop
