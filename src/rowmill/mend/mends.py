"""What was mended -> words and sums.

Promises: every kind of change to a file has a count here, and every count a phrase.
Knows nothing of: files, how a fault is mended.
Memory: a record a file.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Mends(msgspec.Struct):
    """What was done to the text of one file, or of all of them."""

    transcoded: int = 0
    """Files that were UTF-16 or UTF-32."""
    boms: int = 0
    """Byte order marks taken off; a file of several joined ones has some inside."""
    line_ends: int = 0
    """Lines that ended with CR LF, or with CR."""
    blank_lines: int = 0
    final_newlines: int = 0
    cut_lines: int = 0
    cut_bytes: int = 0
    """Bytes kept beside the copy because the file ends within a line, or within a character."""
    characters: int = 0
    """Control characters inside strings that were written as escapes."""
    nulls: int = 0
    """`NaN`, `Infinity` and `-Infinity` that became null."""
    ids: int = 0
    """Rows with a new id, since an earlier one had theirs."""
    not_utf8: int = 0
    """Lines that are no UTF-8: left as they are, for nobody can know what they mean."""

    def add(self, other: Mends) -> None:
        """Sum up."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))

    @property
    def has_changed(self) -> bool:
        """Whether the copy differs from the file."""
        return msgspec.structs.replace(self, not_utf8=0) != Mends()

    def phrases(self) -> Iterator[str]:
        """What was done, a phrase each."""
        for field, one, many in _PHRASES:
            number = getattr(self, field)
            if number:
                yield one if number == 1 else many.format(f"{number:,}")


_PHRASES = (
    ("transcoded", "written as UTF-8", "{} files written as UTF-8"),
    ("boms", "byte order mark taken off", "{} byte order marks taken off"),
    ("line_ends", "1 line end made LF", "{} line ends made LF"),
    ("blank_lines", "1 blank line dropped", "{} blank lines dropped"),
    ("final_newlines", "final newline added", "{} final newlines added"),
    ("cut_lines", "cut last line left out", "{} cut last lines left out"),
    ("characters", "1 control character escaped", "{} control characters escaped"),
    ("nulls", "1 NaN or Infinity made null", "{} NaN or Infinity made null"),
    ("ids", "1 repeated id made unique", "{} repeated ids made unique"),
    ("not_utf8", "1 line is no UTF-8 and was left", "{} lines are no UTF-8 and were left"),
)


class MendedFile(msgspec.Struct, kw_only=True):
    """One file of the input and its copy."""

    name: str
    copy: str
    """Name of the copy in the folder; that of the file unless a walk of the folder would pass it over."""
    encoding: str = ""
    """`UTF-16` or `UTF-32` where the file was not UTF-8."""
    mends: Mends = msgspec.field(default_factory=Mends)
    num_bytes: int = 0
    """Of the copy, before ids are made unique."""

    def line(self) -> str:
        """The file for people."""
        told = list(self.mends.phrases())
        if self.encoding:
            told[0] = f"{self.encoding} {told[0]}"
        if self.copy != self.name:
            told.insert(0, f"named `{self.copy}`")
        kept = ""
        if self.mends.cut_bytes:
            number = self.mends.cut_bytes
            size = f"{number:,} byte{'' if number == 1 else 's'}"
            kept = f"; its cut end ({size}) is in `{self.copy}.cut`"
        return f"{self.name}: {', '.join(told)}{kept}"
