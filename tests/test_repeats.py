from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.repeats import find_repeated_key, repeated_key

NAMES = st.sampled_from(["a", "b", "A", "", '"', '":', "\\", '\\":', "é", ":"])
Tree = list[tuple[str, Any]] | str | int | None
"""Objects as lists of pairs, so that a name may come twice."""
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.none() | st.integers() | NAMES,
    lambda inner: st.lists(st.tuples(NAMES, inner), max_size=4),
    max_leaves=8,
)


def text_of(tree: Tree, *, is_ascii: bool) -> str:
    if isinstance(tree, list):
        pairs = (
            f"{json.dumps(k, ensure_ascii=is_ascii)}:{text_of(v, is_ascii=is_ascii)}"
            for k, v in tree
        )
        return "{" + ",".join(pairs) + "}"
    return json.dumps(tree, ensure_ascii=is_ascii)


def has_repeat(tree: Tree) -> bool:
    if not isinstance(tree, list):
        return False
    names = [name for name, _ in tree]
    return len(set(names)) < len(names) or any(has_repeat(part) for _, part in tree)


@given(TREES, st.booleans())
def test_a_key_given_twice_is_found_at_any_depth(tree: Tree, is_ascii: bool) -> None:
    text = text_of(tree, is_ascii=is_ascii).encode()

    found = repeated_key(text, msgspec.json.decode(text))

    assert (found is not None) == has_repeat(tree)
    assert found == find_repeated_key(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'{"a":1,"a":2}', "a"),
        (b'{"a":1,"A":2}', None),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":{"k":1,"k":[]}}', "k"),
        (b'[{"a":1},{"a":2}]', None),
        (b'{"a":"\\":\\":","b":1}', None),
        (b'{"a":"\\u0022:","a":1}', "a"),
        (b'{"n":1e9,"n":' + b"9" * 4000 + b"}", "n"),
    ],
)
def test_keys(text: bytes, name: str | None) -> None:
    assert repeated_key(text, msgspec.json.decode(text)) == name
