"""Batch files of either dialect, whoever wrote them -> what is in them.

Promises: lines of `vllm run-batch` and of OpenAI's output and error files are understood alike; a last line that was
cut off is passed over and told.
Knows nothing of: runs.
Memory: one line; the ids, where they are asked for.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rowmill.errors import BadSource
from rowmill.report.run import run_of
from rowmill.write.form import form_of_name

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

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


def is_alone(path: str) -> bool:
    """Whether this is a batch file, by its first line, and no run lies beside it."""
    if run_of(path) != path or not Path(path).is_file():
        return False
    try:
        with _opened(path) as file:
            _decode(file.readline(_HEAD_BYTES))
    except (OSError, EOFError, zstd.ZstdError, zlib.error, msgspec.MsgspecError):
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
    for _, line in _all_lines(files):
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


class ReadLine(NamedTuple):
    """One line of a batch file."""

    raw: bytes
    """As it stands there, its end included."""
    key: Any
    """Its id, as `id_key` makes it."""
    is_answered: bool
    is_readable: bool


def read_lines(path: str) -> Iterator[ReadLine]:
    """The lines of a batch file that are not blank.

    Raises:
        BadSource: It cannot be read.
    """
    for raw, line in _all_lines([path]):
        whole = raw if raw.endswith(b"\n") else raw + b"\n"
        if line is None:
            yield ReadLine(whole, None, is_answered=False, is_readable=False)
        else:
            key = id_key(line.custom_id)
            yield ReadLine(whole, key, is_answered=_is_answered(line), is_readable=True)


def id_key(id: Any) -> Any:
    """What is equal where ids are: of JSON as it was decoded, or of its text."""
    found = msgspec.json.decode(id) if isinstance(id, msgspec.Raw) else id
    if found is None or isinstance(found, str):
        return found or None  # an empty text is no id
    return msgspec.json.encode(found)


def _all_lines(paths: Iterable[str]) -> Iterator[tuple[bytes, _Line | None]]:
    """(text, line) of what is not blank, also of compressed files; None for what is no line of a batch file."""
    for path in paths:
        try:
            with _opened(path) as file:
                for raw in file:
                    if raw.strip():
                        yield raw, _line(raw)
        except (OSError, EOFError, zstd.ZstdError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or "it is no compressed file, or cut off"
            raise BadSource(reason=f"`{path}` cannot be read: {reason}") from error


def _opened(path: str) -> BufferedIOBase:
    form = form_of_name(Path(path).name)
    packed = form.compression if form is not None and form.is_lines else "none"
    if packed == "gzip":
        return gzip.open(path)
    return zstd.open(path) if packed == "zstd" else Path(path).open("rb")


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
