"""Batch files of either dialect, whoever wrote them -> what is in them.

Promises: lines of `vllm run-batch` and of OpenAI's output and error files are understood alike; a last line that was
cut off is passed over and told.
Knows nothing of: runs.
Memory: one line; the ids, where they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rowmill.errors import BadSource

MAX_SHAPES = 5
MAX_WORDS = 160
_HEAD_BYTES = 1 << 20


class _Response(msgspec.Struct):
    status_code: int = 200
    body: Any = None


class _Line(msgspec.Struct):
    custom_id: Any
    response: _Response | None
    error: Any


_decode = msgspec.json.Decoder(_Line).decode


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What batch files hold, counted."""

    files: list[str]
    ok: int
    failed: int
    unreadable: int
    """Lines that are none of a batch file, such as a last one that was cut off."""
    truncated: int
    prompt_tokens: int
    output_tokens: int
    errors: list[tuple[int, str, int]]
    """(status, words, lines), most frequent first."""

    def lines(self) -> Iterator[str]:
        """The status for people."""
        yield f"{', '.join(self.files)}: a batch file, with no run beside it"
        yield f"rows    {self.ok:,} ok, {self.failed:,} failed"
        yield f"        {self.truncated:,} cut by max_tokens"
        yield f"tokens  {self.prompt_tokens:,} in, {self.output_tokens:,} out"
        for status, words, rows in self.errors:
            yield f"failed  {rows:,} x {status or 'not sent'}: {words}"
        if self.unreadable:
            yield f"lines   {self.unreadable:,} cannot be read"


def errors_of(path: str) -> str:
    """Where the lines that failed go, where they go into a file of their own."""
    stem, dot, suffix = path.rpartition(".")
    return f"{stem}.errors.{suffix}" if dot else f"{path}.errors"


def is_batch_file(path: str) -> bool:
    """Whether a file's first line is one of a batch file."""
    try:
        with Path(path).open("rb") as file:
            _decode(file.readline(_HEAD_BYTES))
    except (OSError, msgspec.MsgspecError):
        return False
    return True


def batch_status(path: str) -> BatchStatus:
    """Count what a batch file holds, and the file of its errors where one lies beside it.

    Raises:
        BadSource: One cannot be read.
    """
    counts: Counter[str] = Counter()
    errors: Counter[tuple[int, str]] = Counter()
    errors_file = errors_of(path)
    files = [path, *([errors_file] if Path(errors_file).is_file() else [])]
    for line in _all_lines(files):
        if line is None:
            counts["unreadable"] += 1
        elif _is_answered(line):
            counts["ok"] += 1
            counts.update(_numbers(line))
        else:
            counts["failed"] += 1
            errors[_failure(line)] += 1
    return BatchStatus(
        files=files,
        ok=counts["ok"],
        failed=counts["failed"],
        unreadable=counts["unreadable"],
        truncated=counts["truncated"],
        prompt_tokens=counts["prompt_tokens"],
        output_tokens=counts["output_tokens"],
        errors=[(*shape, rows) for shape, rows in errors.most_common(MAX_SHAPES)],
    )


def answered_ids(paths: Iterable[str]) -> set[Any]:
    """Ids of the lines that hold an answer."""
    return {
        line.custom_id
        for line in _all_lines(paths)
        if line is not None and _is_answered(line) and isinstance(line.custom_id, str | int)
    }


def _all_lines(paths: Iterable[str]) -> Iterator[_Line | None]:
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                for line in file:
                    yield _line(line)
        except OSError as error:
            raise BadSource(reason=f"`{path}` cannot be read: {error.strerror}") from error


def _line(line: bytes) -> _Line | None:
    try:
        return _decode(line)
    except msgspec.MsgspecError:
        return None


def _is_answered(line: _Line) -> bool:
    return line.error is None and line.response is not None and line.response.status_code == 200


def _numbers(line: _Line) -> dict[str, int]:
    body = line.response.body if line.response is not None else None
    if not isinstance(body, dict):
        return {}
    usage = body.get("usage") or {}
    choices = body.get("choices") or ()
    prompt = usage.get("prompt_tokens") or usage.get("input_tokens") or 0
    output = usage.get("completion_tokens") or usage.get("output_tokens") or 0
    is_cut = any(choice.get("finish_reason") == "length" for choice in choices)
    return {"prompt_tokens": prompt, "output_tokens": output, "truncated": int(is_cut)}


def _failure(line: _Line) -> tuple[int, str]:
    """Status, 0 for none, and the words of the error: a string, or an object in one or two layers."""
    status = line.response.status_code if line.response is not None else 0
    told = line.error if line.error is not None else (line.response and line.response.body)
    while isinstance(told, dict):
        told = told.get("error") or told.get("message") or told.get("code") or ""
    words = " ".join(str(told or "").split())
    return status, words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}..."
