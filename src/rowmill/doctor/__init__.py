"""This machine, and an engine and an output if they are named -> what will not work, what will be slow, and what to do.

Promises: within seconds; nothing is changed, no engine is started, no GPU memory is taken.
Knows nothing of: rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rowmill.config import EngineConfig
from rowmill.doctor.appetite import look_at_tokenising
from rowmill.doctor.engines import look_at_engines
from rowmill.doctor.finding import Finding
from rowmill.doctor.gpus import look_at_gpus
from rowmill.doctor.left_behind import look_behind
from rowmill.doctor.machine import look_at_disk, look_at_machine
from rowmill.size import find_gpus

__all__ = ["Examined", "Finding", "examine"]

BAD, SLOW = 2, 4


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """All findings."""

    findings: list[Finding]
    exit_code: int
    """2: something will not work; 4: something will be slow; 0: neither."""

    def lines(self) -> Iterator[str]:
        """For people."""
        yield from (finding.line() for finding in self.findings)
        bad = sum(finding.level == "bad" for finding in self.findings)
        slow = sum(finding.level == "slow" for finding in self.findings)
        yield f"{len(self.findings)} looked at: {bad} will not work, {slow} will be slow"


def examine(engine: EngineConfig | None = None, *, output: str = ".") -> Examined:
    """Look at this machine.

    Args:
        engine: what is to answer; None: engines are only listed.
        output: where results are to go.
    """
    findings = [
        *look_at_gpus(),
        *look_at_engines(engine),
        *look_at_machine(len(find_gpus())),
        *look_at_disk(output),
        *look_at_tokenising(engine),
        *look_behind(output),
    ]
    levels = {finding.level for finding in findings}
    code = BAD if "bad" in levels else SLOW if "slow" in levels else 0
    return Examined(findings=findings, exit_code=code)
