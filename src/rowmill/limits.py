"""What the planner, the feed and those behind an engine must know of it, as one record.

Knows nothing of: engines, rows.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What the planner and the feed must know of an engine, declared when it is open."""

    takes: Literal["ids", "wire"] = "ids"
    """Token ids, or JSON bodies that a remote side renders and tokenises."""
    max_model_tokens: int = 0
    """Most tokens of prompt and answer together; 0: not known."""
    seats: int = 1
    """Rows worked on at once."""
    replicas: int = 1
    """Engines side by side that share them."""
    step_tokens: int = 0
    """Most tokens of one step; 0: not known, or it makes no steps."""
    kv_tokens: int = 0
    """Tokens the KV cache holds; 0: not known, no governing by tokens."""
    starts_slowly: bool = False
    """It takes so long to start that rows are better tokenised meanwhile."""
    shares_prefixes: bool = False
    """Prompts that begin alike are computed once, as long as the beginning is in its KV cache."""
    sampling: tuple[str, ...] = ()
    """Names of `Sampling` fields it honours beyond temperature, top_p, max_tokens, stop and seed."""
    dimensions: int = 0
    """Of vectors, numbers in each; 0: it makes none, or their length shows with the first."""
    pads: bool = False
    """Rows of one step are filled up to the longest of them."""
    media: tuple[str, ...] = ()
    """What beside text it takes: `image`, `audio`."""
    audio_rate: int = 0
    """Samples a second of the audio that its model hears; 0: not known, or it sees to that by itself."""
    labels: tuple[str, ...] = ()
    """Classes of the model's head, in the order of its numbers."""
    activation: str = ""
    """How those numbers become probabilities or a score: `softmax`, `sigmoid`, or `none` where they are that already."""
    served: str = ""
    """Name of the model that answers where the job names none; empty: there is none, or it is not known."""
    about: str = ""
    """Engine, version and model in words, for people."""
