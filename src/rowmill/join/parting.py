"""Cut + commits -> the specifications of parts: what each results file is made of.

Promises: every row is in one part, neighbours stay together; in input order the rows of the first start and those
of each addition lie in parts of their own; where earlier parts ended, parts end again.
Knows nothing of: how a part is written.
Memory: a record a shard and a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import xxhash

from rowmill import rundir
from rowmill.join.apart import INLINE_BYTES, cores
from rowmill.join.outcomes import by_completion
from rowmill.join.part import PartDone, PartSpec
from rowmill.journal import Commit
from rowmill.record import Cut, Places
from rowmill.rows import Shard, pack_key
from rowmill.write.form import Form

T = TypeVar("T")
Limited = tuple[Shard, int]
"""A shard, and one past the last ordinal that belongs to the run."""
JSON_LINES = Form()


class Shape(msgspec.Struct, frozen=True):
    """What shapes the files beside rows and outcomes."""

    prefix: str
    part_bytes: int
    form: Form = JSON_LINES

    @property
    def digest(self) -> str:
        """Equal where files are cut and written alike."""
        return xxhash.xxh3_64_hexdigest(msgspec.json.encode(self))


def run_limits(cut: Cut) -> list[Limited]:
    """Shards of the run, with one past the last ordinal that belongs to it."""
    return [(shard, stop) for shard, _, stop in Places(cut).all_slices()]


def column_limits(cut: Cut) -> list[Limited]:
    """Shards whose columns results have: those of rows, or all where there is no row at all."""
    return run_limits(cut) or [(shard, 0) for shard in cut.shards]


def cut_parts(
    cut: Cut, commits: Sequence[Commit], shape: Shape, *, before: Sequence[PartDone] = ()
) -> list[PartSpec]:
    """Parts of about equal size, none much over `part_bytes` uncompressed, as many as keep all cores at work.

    Args:
        before: earlier parts of the same shape: what they were made of is cut as it was.
    """
    if shape.form.order == "completion":
        return _cut_by_completion(cut, commits, shape, before)
    by_generation: dict[int, list[Limited]] = {}
    number_of = {at: n for n, range_ in enumerate(cut.generations()) for at in range_}
    for shard, limit in run_limits(cut):
        by_generation.setdefault(number_of[shard.index], []).append((shard, limit))

    def grouped(units: list[Limited]) -> list[list[Limited]]:
        sizes = [shard.weight for shard, _ in units]
        within = _within([shard for shard, _ in units], commits)
        return _grouped(units, sizes, _num_parts(sum(sizes), within, shape.part_bytes))

    specs = []
    for number, group in enumerate(_as_before(list(by_generation.values()), before, grouped)):
        shards = [shard for shard, _ in group]
        name = rundir.part(number, shape.form.suffix)
        limits = [limit for _, limit in group]
        within = _within(shards, commits)
        specs.append(PartSpec(name, shards, limits, within, shape.prefix, form=shape.form))
    return specs


def made_of(spec: PartSpec) -> str:
    """Digest of all that a part is made of, wherever the input lies: equal where it would be the same file."""
    commits = [(c.task, c.epoch, c.segments, c.arrival) for c in spec.commits]
    shards = [msgspec.structs.replace(shard, path="") for shard in spec.shards]
    columns = msgspec.structs.replace(spec.columns, notes=[])
    parts = (
        spec.name,
        spec.prefix,
        spec.form,
        columns,
        shards,
        spec.limit,
        spec.slices,
        commits,
    )
    return xxhash.xxh3_64_hexdigest(msgspec.json.encode(parts))


def num_units(spec: PartSpec) -> int:
    """How many of the units that parts are cut between lie in a part: tasks in completion order, else shards."""
    return len(spec.commits if spec.form.order == "completion" else spec.shards)


def _cut_by_completion(
    cut: Cut, commits: Sequence[Commit], shape: Shape, before: Sequence[PartDone]
) -> list[PartSpec]:
    places = Places(cut)
    done = by_completion(commits)

    def grouped(units: list[Commit]) -> list[list[Commit]]:
        tasks = [places.task_slices(commit.task) for commit in units]
        size = sum(_share(shard, stop - first) for task in tasks for shard, first, stop in task)
        sizes = [commit.num_rows for commit in units]
        return _grouped(units, sizes, _num_parts(size, units, shape.part_bytes))

    specs = []
    for number, group in enumerate(_as_before([done], before, grouped)):
        shards: dict[int, Shard] = {}
        slices = []
        for commit in group:
            found = list(places.task_slices(commit.task))
            shards |= {shard.index: shard for shard, _, _ in found}
            at = {index: n for n, index in enumerate(shards)}
            slices.append([(at[shard.index], first, stop) for shard, first, stop in found])
        name = rundir.part(number, shape.form.suffix)
        limits = [shard.num_lines for shard in shards.values()]
        spec = PartSpec(
            name, list(shards.values()), limits, group, shape.prefix, form=shape.form
        )
        specs.append(msgspec.structs.replace(spec, slices=slices))
    return specs


def _share(shard: Shard, num_lines: int) -> int:
    """Bytes of so many lines of a shard, about."""
    return -(-shard.weight * num_lines // max(shard.num_lines, 1))


def _within(shards: Sequence[Shard], commits: Sequence[Commit]) -> list[Commit]:
    """Commits with rows of these neighbours."""
    if not shards:
        return []
    first, last = pack_key(shards[0].index, 0), pack_key(shards[-1].index + 1, 0)
    return [c for c in commits if c.num_rows and c.last_key >= first and c.first_key < last]


def _num_parts(size: int, commits: Sequence[Commit], part_bytes: int) -> int:
    """How many files: the outcomes count, as far as they are known."""
    size += sum(ref.num_bytes for commit in commits for ref in commit.segments)
    number = -(-size // part_bytes)
    return -(-max(number, 1) // cores()) * cores() if size >= INLINE_BYTES else number


def _as_before(
    generations: list[list[T]],
    before: Sequence[PartDone],
    grouped: Callable[[list[T]], list[list[T]]],
) -> list[list[T]]:
    """All units in groups: as the earlier parts had them from the start on, what is left generation by generation."""
    units = [unit for generation in generations for unit in generation]
    groups: list[list[T]] = []
    at = 0
    for part in before:
        if not part.num_units or at + part.num_units > len(units):
            break
        groups.append(units[at : at + part.num_units])
        at += part.num_units
    for generation in generations:
        left = generation[at:]
        at = max(at - len(generation), 0)
        groups += grouped(left) if left else []
    return groups or [[]]


def _grouped(items: Sequence[T], sizes: Sequence[int], number: int) -> list[list[T]]:
    """Neighbours in about `number` groups of equal size; one at least, be it empty."""
    groups: list[list[T]] = [[]]
    total, size = sum(sizes), 0
    for item, weight in zip(items, sizes, strict=True):
        if groups[-1] and size >= len(groups) * total / max(number, 1):
            groups.append([])
        groups[-1].append(item)
        size += weight
    return groups
