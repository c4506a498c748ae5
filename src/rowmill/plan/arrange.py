"""Requests -> the order they are best asked in, decided on their texts, before they are tokenised.

Promises: a permutation of the window, or file order with the reason; the same window gives the same order;
rows that ask the same stand side by side. A lever is used only where its predicate holds.
Knows nothing of: tokens (texts are taken to have so many characters a token), engines beyond their Limits.
Memory: one window; the sort moves references. Time: O(rows log rows) comparisons, and one look at each neighbour.
Source: SGLang (arXiv 2312.07104): in a batch, depth-first order of the prefix tree computes every shared prefix once, and
sorting by text is that order; grouping gains only where the prefixes do not all fit into the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from rowmill.config import PlanConfig
from rowmill.plan.bands import Bands
from rowmill.plan.levers import Lever
from rowmill.rows import Limits, Request
from rowmill.size.work import DECODE_WEIGHT

CHARS_A_TOKEN = 4.0
"""About, for English; only predicates look at it."""
MIN_SHARED_CHARS = 64
"""A block of 16 tokens; less is never found in the cache."""
MIN_SAVED_SHARE = 0.02
MIN_TAIL_SHARE = 0.01


class Arranged(msgspec.Struct, frozen=True):
    """In which order a window is measured and fed, and to which of several engines."""

    order: list[int] | None
    """Indices into the window; None: as the rows stand."""
    levers: list[Lever]
    engines: Mapping[int, int] = {}
    """By key, the engine that a row is for; empty: any for any."""

    def replica_of(self, keys: Sequence[int]) -> list[int]:
        """The engine of each row; empty where that does not matter."""
        return [self.engines[key] for key in keys] if self.engines else []


def arrange(
    requests: Sequence[Request], config: PlanConfig, limits: Limits, *, behind: int = 0
) -> Arranged:
    """Choose an order for one window.

    Args:
        behind: rows that come behind it.
    """
    if config.order == "file":
        told = '`plan.order = "file"`: as the rows stand'
        return Arranged(None, [_unused("prefixes", told), _unused("longest first", told)])
    if limits.takes == "wire":
        told = "no gain here: the endpoint has its own order"
        return Arranged(None, [_unused("prefixes", told), _unused("longest first", told)])
    lengths = [request.sampling.max_tokens or 0 for request in requests]
    tail = _tail_verdict(lengths, limits)
    prefixes, shared = _look_for_prefixes(requests, config, limits)
    levers = [shared, tail]
    if prefixes is not None and shared.is_used:
        order = prefixes.longest_groups_first(lengths) if tail.is_used else prefixes.order
        return Arranged(order, levers)
    if not tail.is_used:
        return Arranged(None, levers)
    texts = [prompt_text(request) for request in requests]
    order = sorted(range(len(texts)), key=lambda i: (-lengths[i], texts[i]))
    if limits.replicas == 1:
        return Arranged(order, levers)
    work = [len(texts[i]) / CHARS_A_TOKEN + DECODE_WEIGHT * lengths[i] for i in order]
    number, falling = limits.replicas, [lengths[i] for i in order]
    bands = Bands(falling, work, number, seats=limits.seats // number, behind=behind)
    engines = {requests[i].key: band for i, band in zip(order, bands.band_of, strict=True)}
    return Arranged([order[i] for i in bands.order], levers, engines)


def arrange_lot(
    requests: Sequence[Request], config: PlanConfig, limits: Limits, *, behind: int = 0
) -> Arranged:
    """Choose an order for one lot: it was sorted to have its rows in the order of their texts, unless another gains."""
    arranged = arrange(requests, config, limits, behind=behind)
    if arranged.order is not None:
        return arranged
    texts = [prompt_text(request) for request in requests]
    return Arranged(sorted(range(len(texts)), key=texts.__getitem__), arranged.levers)


def _look_for_prefixes(
    requests: Sequence[Request], config: PlanConfig, limits: Limits
) -> tuple[_Prefixes | None, Lever]:
    """Texts in order where it may pay, and the verdict. Most windows share nothing: that is seen without a sort."""
    name = "prefixes"
    if not limits.shares_prefixes:
        return None, _unused(name, "no gain here: the engine computes every prompt whole")
    texts = [prompt_text(request) for request in requests]
    root = shared_chars(min(texts), max(texts)) if texts else 0
    heads = {text[root : root + MIN_SHARED_CHARS] for text in texts}
    if len(heads) > (1 - MIN_SAVED_SHARE) * len(texts):
        return None, _unused(
            name, _nothing_shared(root * len(texts) / max(sum(map(len, texts)), 1))
        )
    prefixes = _Prefixes(texts, root)
    return prefixes, prefixes.verdict(limits, config)


def _nothing_shared(root_share: float) -> str:
    if root_share < MIN_SAVED_SHARE:
        return "no gain here: rows share no beginnings"
    return (
        f"no gain here: {root_share:.0%} of the prompts is one beginning that all rows share;"
        " it stays in the cache in any order"
    )


def prompt_text(request: Request) -> str:
    """What the beginning of a row's prompt looks like, enough to see who begins alike."""
    if request.text is not None:
        return request.text
    if request.messages is not None:
        return "\0".join(
            f"{turn.get('role')}\0{turn.get('content')}" for turn in request.messages
        )
    # A character a token: order and equality are those of the ids.
    return "".join(map(chr, request.ids or ())) if _fit(request.ids or ()) else str(request.ids)


def _fit(ids: Sequence[int]) -> bool:
    return all(id_ < 0xD800 for id_ in ids)


class _Prefixes:
    """Texts of a window in depth-first order of their prefix tree, and what neighbours share."""

    def __init__(self, texts: Sequence[str], root: int) -> None:
        """Texts that all begin with the same `root` characters.

        Those are always resident (a system prompt, the template's beginning): no order gains on them.
        """
        self._texts, self._root = texts, root
        self.order = sorted(range(len(texts)), key=texts.__getitem__)
        ordered = [texts[i] for i in self.order]
        lcps = [0, *map(shared_chars, ordered, ordered[1:])] if ordered else []
        self._lcp = np.array(lcps, np.int64)
        self._total = sum(map(len, texts))

    def verdict(self, limits: Limits, config: PlanConfig) -> Lever:
        """Whether to sort, with what it saves at most, in tokens."""
        name = "prefixes"
        own = np.where(self._lcp > self._root, self._lcp - self._root, 0)
        own[own < MIN_SHARED_CHARS] = 0
        saved = int(own.sum())
        share = saved / max(self._total, 1)
        if share < MIN_SAVED_SHARE:
            root_share = self._root * len(self._texts) / max(self._total, 1)
            return _unused(name, _nothing_shared(root_share))
        # Characters that must be in the pool for every shared beginning to be there at once.
        distinct = int((self._group_lengths()).sum()) / CHARS_A_TOKEN
        # Each engine has its own part of the cache, and rows of a beginning that go to all of them are computed by all.
        pool = limits.kv_tokens / limits.replicas
        spare = pool - self._running_tokens(limits) / limits.replicas
        copies = distinct * (limits.replicas - 1) * CHARS_A_TOKEN / max(self._total, 1)
        fits = limits.kv_tokens and distinct <= spare and copies < MIN_SAVED_SHARE
        if fits and config.order != "prefix":
            told = (
                f"no gain here: shared beginnings ({distinct:,.0f} tokens, about) fit into"
                f" the KV cache ({pool:,.0f} tokens) in any order"
            )
            return msgspec.structs.replace(_unused(name, told), fits=True)
        against = (
            f"the KV cache of {limits.kv_tokens:,}"
            if limits.kv_tokens
            else "a KV cache of unknown size"
        )
        against += f", parted among {limits.replicas} engines" if limits.replicas > 1 else ""
        return Lever(
            name=name,
            is_used=True,
            reason=(
                f"rows that begin alike are asked together: {distinct:,.0f} tokens of shared beginnings, about,"
                f" against {against}; up to {share:.0%} of the prompt tokens from the cache"
            ),
            saved_tokens=int(saved / CHARS_A_TOKEN),
        )

    def longest_groups_first(self, lengths: Sequence[int]) -> list[int]:
        """Groups whole, those with the longest answers for their prompts first, longest first inside."""
        starts = np.flatnonzero(self._lcp - self._root < MIN_SHARED_CHARS).tolist()
        groups = [
            self.order[start:stop]
            for start, stop in zip(starts, [*starts[1:], len(self.order)], strict=True)
        ]
        groups.sort(key=lambda rows: -max(lengths[i] for i in rows))
        return [i for rows in groups for i in sorted(rows, key=lambda i: -lengths[i])]

    def _group_lengths(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Of each run of rows that share a beginning, the characters of it."""
        own = self._lcp - self._root
        is_member = own >= MIN_SHARED_CHARS
        starts = np.flatnonzero(is_member & ~np.concatenate(([False], is_member[:-1])))
        if not len(starts):
            return np.zeros(0, np.int64)
        return np.maximum.reduceat(np.where(is_member, own, 0), starts)

    def _running_tokens(self, limits: Limits) -> float:
        """Tokens that rows in their seats hold beside what they share."""
        mean = self._total / max(len(self._texts), 1) / CHARS_A_TOKEN
        return min(limits.seats, len(self._texts)) * mean


def shared_chars(left: str, right: str) -> int:
    """Characters that two neighbours begin with alike; by halves, each comparison at the speed of memory."""
    low, high = 0, min(len(left), len(right))
    if left[:MIN_SHARED_CHARS] != right[:MIN_SHARED_CHARS]:
        high = min(high, MIN_SHARED_CHARS)
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _tail_verdict(lengths: Sequence[int], limits: Limits) -> Lever:
    """Whether the longest answers are worth beginning with: what they take alone at the end, against the whole."""
    name = "longest first"
    if not lengths or min(lengths) == max(lengths):
        return _unused(name, "no gain here: all rows may answer equally long")
    if not min(lengths):
        return _unused(name, "no gain here: how long answers get is not known")
    steps = max(sum(lengths) / max(min(limits.seats, len(lengths)), 1), max(lengths))
    share = max(lengths) / steps
    if share < MIN_TAIL_SHARE:
        told = f"no gain here: the longest answer is {share:.1%} of the work of a seat"
        return _unused(name, told)
    return Lever(
        name=name,
        is_used=True,
        reason=f"the longest answer ({max(lengths):,} tokens) is {share:.0%} of the work of a seat: long ones begin",
    )


def _unused(name: str, reason: str) -> Lever:
    return Lever(name=name, is_used=False, reason=reason)
