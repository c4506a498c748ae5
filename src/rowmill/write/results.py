"""Source line + outcome line -> result line: the untouched columns with rowmill's own behind them.

Promises: what the source line held is carried byte for byte; output is strict JSON in UTF-8, one object a line.
Knows nothing of: files, order.
Source: measured, 300-byte rows: joining the two lines as they are 0.6 us a row; decoding and encoding again 4 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from rowmill.outcomes import decode
from rowmill.rows import NULL, RESULT_PREFIX, Outcome, Partitions
from rowmill.write.answer_form import OWN_FIELDS, AnswerForm
from rowmill.write.vectors import vector_texts

ROW_COLUMN = "row"
"""`FILE:LINE` of the source line."""
UNREADABLE = b'"unreadable"'
"""Kind of failure of a line that cannot be carried as it is: the few lines that hold these bytes are looked at closely."""

Fields = Callable[[Sequence[bytes]], Iterable[bytes]]
"""Outcome lines -> what stands in result lines, from behind the first brace on."""
Carried = Callable[[bytes, Partitions], bytes]
"""A bad line and its folders -> what of it is carried, as it stands inside an object, a comma behind each column."""


class ResultLines:
    """Makes result lines for one output prefix."""

    def __init__(self, prefix: str, own: AnswerForm | None, carried: Carried) -> None:
        """Lines with names that begin with `prefix`, answers that are no text by `own`, bad lines by `carried`."""
        self._carried = carried
        self._row = msgspec.json.encode(prefix + ROW_COLUMN)
        self._rename: Fields | None = None
        if own is not None:
            self._rename = OwnLines(prefix, own)
        elif prefix != RESULT_PREFIX:
            self._rename = _renamed(prefix)

    def lines(
        self,
        name: str,
        rows: Sequence[tuple[int, bytes, int, bytes]],
        folders: Partitions = (),
    ) -> Iterator[bytes]:
        """Result lines, line feeds and all.

        Args:
            name: of the source file.
            rows: (line number, source line without white space around it, length of what comes before the
                fields in the outcome's line, that line without line feed) of each.
            folders: of the source file, such as `region=007`.
        """
        row = b"%b:%b" % (self._row, msgspec.json.encode(name)[:-1])
        owns: Iterable[bytes]
        if self._rename is not None:
            owns = self._rename([outcome for *_, outcome in rows])
        else:
            owns = (outcome[start:] for _, _, start, outcome in rows)
        for (number, source, _, outcome), own in zip(rows, owns, strict=True):
            if source[1:2] != b'"' or UNREADABLE in outcome:
                own_part = b'%b:%d",%b\n' % (row, number, own)
                yield self._odd_line(source, folders, own_part, outcome)
            else:
                # White space before the brace that is cut off does no harm in JSON.
                yield b'%b,%b:%d",%b\n' % (source[:-1], row, number, own)

    def _odd_line(
        self, source: bytes, folders: Partitions, own: bytes, outcome: bytes
    ) -> bytes:
        """A line of an object without columns, or of one that may be no object at all."""
        if UNREADABLE in outcome and decode(outcome).error_kind == "unreadable":
            return b"{%b%b" % (self._carried(source, folders), own)
        head = source[:-1].rstrip()
        return b"{" + own if head == b"{" else b"%b,%b" % (head, own)


def key_start(key: int) -> bytes:
    """What the line of a key's outcome begins with; behind it are the fields."""
    return b'{"key":%d,' % key


def _renamed(prefix: str) -> Fields:
    """Fields under another prefix than segments have."""
    fields = msgspec.structs.fields(Outcome)[1:]
    struct: Any = msgspec.defstruct(
        "Result",
        [(field.name, field.type) for field in fields],
        rename={field.name: prefix + field.name for field in fields},
        gc=False,
    )
    encode = msgspec.json.Encoder().encode

    def rename(outcomes: Sequence[bytes]) -> Iterator[bytes]:
        for outcome in outcomes:
            values = msgspec.structs.astuple(decode(outcome))[1:]
            yield encode(struct(*values))[1:]

    return rename


class OwnLines:
    """Callable: outcome lines -> what stands in result lines: the fields that the job's kind has, all of them in each
    line, vectors as lists of numbers."""

    def __init__(self, prefix: str, form: AnswerForm) -> None:
        self._form = form
        chunk = msgspec.defstruct(
            "ChunkResult", [("start", int), ("stop", int), ("embedding", msgspec.Raw)]
        )
        fields = msgspec.structs.fields(Outcome)[1:]
        own = {"embedding": msgspec.Raw, "chunks": list[chunk]}  # type: ignore[valid-type]
        self._chunk: Any = chunk
        self._struct: Any = msgspec.defstruct(
            "VectorResult",
            [(field.name, own.get(field.name, field.type), UNSET) for field in fields],
            rename={field.name: prefix + field.name for field in fields},
        )
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """See the class."""
        outcomes = [decode(line) for line in lines]
        vectors = [vector for outcome in outcomes for vector in _vectors(outcome)]
        texts = iter(vector_texts(vectors, self._form.bits))
        for outcome in outcomes:
            yield self._encode(self._result(outcome, texts))[1:]

    def _result(self, outcome: Outcome, texts: Iterator[bytes]) -> Any:
        fields = msgspec.structs.asdict(outcome)
        del fields["key"]
        kept = self._form.fields
        for name in OWN_FIELDS:
            # A row that failed before the engine had it knows nothing of what it would have become.
            fields[name] = _or_null(fields[name]) if name in kept else UNSET
        if self._form.kind == "embed":
            fields["embedding"] = msgspec.Raw(next(texts)) if outcome.embedding else NULL
        if "chunks" in kept:
            fields["chunks"] = [
                self._chunk(chunk.start, chunk.stop, msgspec.Raw(next(texts)))
                for chunk in outcome.chunks or ()
            ]
        return self._struct(**fields)


def _or_null(value: Any) -> Any:
    return None if value is UNSET or value == b"" else value


def _vectors(outcome: Outcome) -> Iterator[bytes]:
    if outcome.embedding:
        yield outcome.embedding
    for chunk in outcome.chunks or ():
        yield chunk.embedding
