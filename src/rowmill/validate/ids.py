"""The user's own id of a row, in one spelling.

Promises: 1 and "1" differ; composed and decomposed letters differ; `"a"` and `"\\u0061"` are the same;
numbers keep their digits.
Knows nothing of: whether ids repeat.
"""

from __future__ import annotations

import msgspec

from rowmill.errors import InvalidRow
from rowmill.validate.lines import value_of, what_is

NONE = (b"", b"null", b'""')


def canonical_id(raw: bytes, field: str) -> bytes:
    """JSON text of an id; empty where it is null, an empty string or absent.

    Raises:
        InvalidRow: a list or an object.
    """
    if raw in NONE:
        return b""
    if raw[0] == 34:  # a string; without a backslash JSON has one spelling for it
        return raw if b"\\" not in raw else msgspec.json.encode(value_of(raw, field))
    if raw[0] in b"[{":
        reason = f"`{field}` is {what_is([0] if raw[0] == 91 else {0: 0})}, expected a string or a number as id"
        raise InvalidRow(reason=reason)
    return raw
