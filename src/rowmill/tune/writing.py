"""Chosen settings -> the lines of a job file, everything else of it as it was.

Promises: comments, order and spelling of all other lines stay, a value that is replaced stays above as a comment; what is
written is read again and must be the old job with the changes and nothing else, or the file is left alone. A reason stands
behind each value as a comment.
Knows nothing of: where settings come from.
Memory: the file.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TABLE = "engine"
_KEY = r"[A-Za-z0-9_-]+"
_HEADER = re.compile(r"^\s*\[\s*engine\s*\]\s*(#.*)?$")
_ANY_HEADER = re.compile(r"^\s*\[")
_DOTTED = re.compile(rf"^\s*engine\s*\.\s*({_KEY})\s*=")
_PLAIN = re.compile(rf"^\s*({_KEY})\s*=")


def engine_lines(chosen: Mapping[str, tuple[Any, str]]) -> list[str]:
    """Lines of `[engine]`, each with its reason."""
    return [f"{name} = {toml(value)}  # {why}" for name, (value, why) in chosen.items()]


def edited(text: str, chosen: Mapping[str, tuple[Any, str]]) -> str | None:
    """The file with these settings in `[engine]`; None where its spelling is too unusual to be changed.

    Args:
        chosen: value and reason by name.
    """
    ending = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(ending)
    for name, (value, why) in chosen.items():
        _put(lines, name, f"{toml(value)}  # {why}")
    new = ending.join(lines)
    try:
        found, wanted = tomllib.loads(new), copy.deepcopy(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return None
    table = wanted.setdefault(TABLE, {})
    if not isinstance(table, dict):
        return None
    table.update({name: value for name, (value, _) in chosen.items()})
    return new if found == wanted else None


def write(path: Path, chosen: Mapping[str, tuple[Any, str]]) -> bool:
    """Change a job file in place. Returns: False where it was left alone."""
    # Bytes, so that line ends stay as they are.
    new = edited(path.read_bytes().decode("utf-8"), chosen)
    if new is None:
        return False
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(new.encode())
    draft.chmod(path.stat().st_mode)
    draft.replace(path)
    return True


def toml(value: Any) -> str:
    """A value as TOML writes it: settings of engines are numbers, words and yes or no."""
    return json.dumps(value, ensure_ascii=False)


def _put(lines: list[str], name: str, value: str) -> None:
    start = next((i for i, line in enumerate(lines) if _HEADER.match(line)), None)
    if start is None:
        _put_dotted(lines, name, value)
        return
    stop = next(
        (i for i in range(start + 1, len(lines)) if _ANY_HEADER.match(lines[i])), len(lines)
    )
    last = start
    for i in range(start + 1, stop):
        match = _PLAIN.match(lines[i])
        if match and match[1] == name:
            lines[i : i + 1] = _over(lines[i], f"{name} = {value}")
            return
        if match:
            last = i
    lines.insert(last + 1, f"{name} = {value}")


def _over(old: str, new: str) -> list[str]:
    """What was there stays as a comment, with its own."""
    return (
        [new] if old.split("#")[0].strip() == new.split("#")[0].strip() else [f"# {old}", new]
    )


def _put_dotted(lines: list[str], name: str, value: str) -> None:
    """There is no `[engine]`: beside `engine.KEY = ...` where that stands, else a table at the end."""
    found = {m[1]: i for i, line in enumerate(lines) if (m := _DOTTED.match(line))}
    if name in found:
        i = found[name]
        lines[i : i + 1] = _over(lines[i], f"engine.{name} = {value}")
    elif found:
        lines.insert(max(found.values()) + 1, f"engine.{name} = {value}")
    else:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += ["", f"[{TABLE}]", f"{name} = {value}", ""]
