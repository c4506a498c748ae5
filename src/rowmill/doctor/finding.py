"""What one look at a machine found.

Knows nothing of: what is looked at.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "slow", "bad"]
MARKS: dict[Level, str] = {"ok": "ok  ", "slow": "slow", "bad": "BAD "}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    """`ok`; `slow`: works, and not as it could; `bad`: keeps a run from working, or from ending well."""
    about: str
    """In a word or two."""
    says: str
    remedy: str = ""
    """What to do; empty where nothing is to be done."""

    def line(self) -> str:
        """All of it."""
        return f"{MARKS[self.level]}  {self.about}: {self.says}" + (
            f"; {self.remedy}" if self.remedy else ""
        )


def ok(about: str, says: str) -> Finding:
    """As it should be."""
    return Finding("ok", about, says)


def slow(about: str, says: str, remedy: str) -> Finding:
    """Works, and not as it could."""
    return Finding("slow", about, says, remedy)


def bad(about: str, says: str, remedy: str) -> Finding:
    """Will not work."""
    return Finding("bad", about, says, remedy)
