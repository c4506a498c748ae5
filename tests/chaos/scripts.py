"""Rows at which their engine dies or runs out of memory, by the echo engine's fault script."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.chaos.scene import Scene
from tests.chaos.schedule import Episode, Fault
from tests.kill import left
from tests.kill.small_job import SmallJob


class Script:
    """The rows of a job that were drawn for it."""

    def __init__(self, episode: Episode, job: SmallJob) -> None:
        self._fault_of: dict[str, Fault] = {}
        """Place of the row -> what it does."""
        faults: list[dict[str, Any]] = []
        for fault, share in episode.scripted:
            row = job.rows[int(share * (len(job.rows) - 1))]
            self._fault_of[row["place"]] = fault
            times = int(fault != "row kills every engine")
            action = "oom" if fault == "engine out of memory" else "die"
            faults.append({"contains": row["prompt"], "action": action, "times": times})
        settings = {**job.settings, "engine.faults": faults} if faults else job.settings
        self.job = replace(job, settings=settings)

    @property
    def killers(self) -> frozenset[str]:
        """Places of the rows that no engine survives."""
        return frozenset(p for p, f in self._fault_of.items() if f == "row kills every engine")

    def count(self, scene: Scene) -> None:
        """Count the deaths. Seen: the row's own outcome tells of them, and who could be answered was."""
        for record in left.published(self.job.out) if self._fault_of else []:
            fault = self._fault_of.get(record["rowmill_row"])
            if fault and fault != "row kills every engine":
                scene.toll.deaths += 1
                scene.saw(fault, was_seen=record["rowmill_attempts"] > 1)
            elif fault:
                # It kills at each start. Its outcome tells of the deaths under one parent, the log of all.
                scene.toll.deaths += scene.started[self._key_of_killer()]
                scene.saw(fault, was_seen=record["rowmill_attempts"] > 2)

    def _key_of_killer(self) -> int:
        for file in sorted((self.job.out / "segments").glob("*/*.jsonl")):
            for line in Path(file).read_bytes().splitlines():
                if b'"killed_engine"' in line:
                    return int(json.loads(line)["key"])
        msg = "no segment tells of a row that killed its engine"
        raise AssertionError(msg)
