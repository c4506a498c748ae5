"""A first question to endpoints that embed: how long are your vectors?

Promises: asked once a start, with a text of our own; who does not answer it is no reason to fail: the first good
vector tells the length then.
Knows nothing of: rows.
Memory: one answer.
"""

from __future__ import annotations

import http.client
import urllib.request

import msgspec

from rowmill import errors
from rowmill.engines.http_kinds import read_vectors
from rowmill.engines.http_options import HttpOptions
from rowmill.engines.http_wire import trusted
from rowmill.engines.vectors import length_of

_TEXT = "a"


def first_length(options: HttpOptions, model: str, patience_s: float) -> int:
    """Numbers in a vector of the first endpoint that tells; 0 where none does."""
    asked = {"input": _TEXT, **({"model": model} if model else {})}
    body = msgspec.json.encode(asked)
    for root in options.roots:
        request = urllib.request.Request(f"{root}/embeddings", body, options.headers)
        try:
            with opener(root).open(request, timeout=patience_s) as response:
                found = msgspec.json.decode(response.read(), type=dict)
            length = length_of(read_vectors(found, body))
        except (OSError, http.client.HTTPException, msgspec.DecodeError, errors.Disconnected):
            continue
        if length:
            return length
    return 0


def opener(root: str) -> urllib.request.OpenerDirector:
    """What opens URLs below an endpoint's root."""
    https = [urllib.request.HTTPSHandler(context=trusted())] if root.startswith("https") else []
    # Not `urlopen`: that keeps the proxies of its first call.
    return urllib.request.build_opener(*https)
