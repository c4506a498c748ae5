"""Token ids made ahead are those that a worker makes; whatever else lies in their place is as if nothing did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rowmill import rundir
from rowmill.config import Job
from rowmill.executors.opening import Opened, open_run, start_run, stations_of
from rowmill.executors.preparing import Preparer, with_prepared
from rowmill.leases import claim_output
from rowmill.measure import open_measure
from rowmill.pipeline import TaskRows, Window
from rowmill.prepared import Draft, Prepared
from rowmill.storage import Storage, open_storage
from rowmill.tokens import Tokenizer
from tests.measure.measured import GOLDEN

ROWS, TASK_ROWS = 60, 20
LINES = [
    *(f'{{"id": {i}, "prompt": "row {i} {"of many words " * (i % 7)}"}}' for i in range(50)),
    '{"id": 50, "messages": [{"role": "user", "content": "a talk"}]}',
    *('{"id": 51, "prompt_token_ids": [5, 6]}', '{"id": 52, "prompt": "half \\ud83d"}'),
    *('{"id": 53}', "no JSON", '{"id": 55, "prompt": "row 1 of many words "}'),
    *(f'{{"id": {i}, "prompt": "{"far too long " * 400}"}}' for i in range(56, 60)),
]


class Counting:
    """The tokenizer, and how many texts it was given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self.texts = tokenizer, 0

    def encode_batch(self, texts: list[str], *, add_special: bool) -> Any:
        self.texts += len(texts)
        return self._tokenizer.encode_batch(texts, add_special=add_special)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.fixture(params=["folder"])
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f"{line}\n" for line in LINES))
    stored = f"memory://{tmp_path.name}/out"
    return made_job(source, stored if request.param == "objects" else str(tmp_path / "out"))


def made_job(source: Path, out: str, **changes: Any) -> Job:
    template = source.with_name("chat.jinja")
    template.write_text("{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}")
    engine = {
        "name": "echo",
        "tokenizer": str(GOLDEN / "tiny_tokenizer"),
        "chat_template": str(template),
        "max_model_len": 256,
    }
    tree = {"engine": engine, "plan": {"window_rows": 16}, "run": {"task_rows": TASK_ROWS}}
    return Job.model_validate({"source": str(source), "output": out, **tree, **changes})


@pytest.fixture
def run(job: Job) -> Iterator[tuple[Opened, Storage]]:
    """A run whose owner lives."""
    storage = open_storage(job.output.path)
    with claim_output(storage, token="mine"):
        start_run(open_run(job, storage, token="mine"), storage)
        yield open_run(job, storage, token="mine"), storage


def counted(opened: Opened) -> tuple[Opened, Counting]:
    words = opened.words
    assert words.tokenizer is not None
    tokenizer = Counting(words.tokenizer)
    measure = open_measure(words.job, tokenizer, words.limits)  # type: ignore[arg-type]
    words = msgspec.structs.replace(words, measure=measure)
    return msgspec.structs.replace(opened, words=words), tokenizer


def windows(opened: Opened) -> tuple[list[Window], int]:
    """All windows of a run, and how many rows came with ids."""
    stations = stations_of(opened)
    tasks = (
        TaskRows(task, list(opened.places.task_slices(task)), set())
        for task in range(opened.cut.num_tasks)
    )
    return list(stations.windows(tasks)), stations.num_known


def shown(windows: list[Window]) -> list[Any]:
    """What the engine and the journal are given."""
    return [
        (
            window.rejects,
            window.ends,
            [(b.keys, b.ids.tolist(), b.max_tokens) for b in window.plan.batches(7)],
        )
        for window in windows
    ]


def prepare(job: Job, tasks: range) -> None:
    preparer = Preparer(job, token="mine")
    made = [preparer.prepare(task) for task in tasks]
    preparer.close()
    assert [one.error for one in made] == [None] * len(made)
    assert all(one.num_bytes for one in made)


@pytest.mark.parametrize("job", ["folder", "objects"], indirect=True)
def test_rows_of_prepared_tasks_are_not_tokenised_and_come_out_the_same(
    job: Job, run: tuple[Opened, Storage]
) -> None:
    opened, storage = run
    alone, first = counted(opened)
    plain, none = windows(alone)
    assert none == 0
    assert first.texts >= 51

    prepare(job, range(3))
    ahead, tokenizer = counted(with_prepared(opened, storage))
    seen, known = windows(ahead)

    assert shown(plain) == shown(seen)
    assert known == 56
    assert tokenizer.texts == 0


def test_a_task_without_ids_is_tokenised_beside_those_with(
    job: Job, run: tuple[Opened, Storage]
) -> None:
    opened, storage = run
    prepare(job, range(1, 2))

    seen, known = windows(with_prepared(opened, storage))

    assert known == TASK_ROWS
    assert shown(windows(opened)[0]) == shown(seen)


@pytest.mark.parametrize("kept", [0, 1, 20, 100, 400, -400, -1])
def test_a_torn_file_is_passed_over(job: Job, run: tuple[Opened, Storage], kept: int) -> None:
    opened, storage = run
    prepare(job, range(2))
    whole = storage.read(rundir.prepared(0))
    storage.replace(rundir.prepared(0), whole[:kept])

    seen, known = windows(with_prepared(opened, storage))

    assert known == TASK_ROWS
    assert shown(windows(opened)[0]) == shown(seen)


@pytest.mark.parametrize("at", [3, 20, 60, 300, -300, -1])
def test_a_file_with_another_byte_is_passed_over(
    job: Job, run: tuple[Opened, Storage], at: int
) -> None:
    opened, storage = run
    prepare(job, range(1))
    content = bytearray(storage.read(rundir.prepared(0)))
    content[at] ^= 1
    storage.replace(rundir.prepared(0), bytes(content))

    seen, known = windows(with_prepared(opened, storage))

    assert known == 0
    assert shown(windows(opened)[0]) == shown(seen)


def test_ids_of_another_template_run_or_task_are_passed_over(
    tmp_path: Path, job: Job, run: tuple[Opened, Storage]
) -> None:
    opened, storage = run
    prepare(job, range(1))
    mine = storage.read(rundir.prepared(0))
    other = made_job(tmp_path / "rows.jsonl", str(tmp_path / "other"))
    Path(other.engine.chat_template or "").write_text("{{ messages[0].content }}")
    elsewhere = open_storage(other.output.path)
    with claim_output(elsewhere, token="mine"):
        start_run(open_run(other, elsewhere, token="mine"), elsewhere)
        prepare(other, range(1))
        strange = elsewhere.read(rundir.prepared(0))

    assert strange != mine
    for content, task in ((strange, 0), (mine, 1)):
        storage.replace(rundir.prepared(0), b"")
        storage.replace(rundir.prepared(task), content)
        seen, known = windows(with_prepared(opened, storage))
        assert known == 0
        assert shown(windows(opened)[0]) == shown(seen)


def test_a_file_is_bounded_and_what_is_in_it_counts(
    job: Job, run: tuple[Opened, Storage]
) -> None:
    opened, storage = run
    draft = Draft(0, "mark", most_bytes=3 << 20)
    added = 0
    while not draft.is_full:
        draft.add(added, np.full(1 << 17, added, np.uint32))
        added += 1
    size = draft.keep(storage)
    rows, _ = requests_of(opened)

    known = Prepared(storage, opened.places, "mark").ids_of(rows)

    assert size == storage.size(rundir.prepared(0))
    assert 0 < size <= (3 << 20) + 1000
    assert sorted(known) == [0, 1, 2, 3]
    assert added == 6
    assert all((ids == key).all() and len(ids) == 1 << 17 for key, ids in known.items())
    assert not Prepared(storage, opened.places, "another").ids_of(rows)


def requests_of(opened: Opened) -> tuple[list[Any], int]:
    stations = stations_of(opened)
    tasks = [TaskRows(0, list(opened.places.task_slices(0)), set())]
    valid = list(stations.validated(tasks))
    return [request for one in valid for request in one.requests], len(valid)


def test_nothing_is_made_ahead_for_a_run_whose_owner_is_gone(job: Job) -> None:
    storage = open_storage(job.output.path)
    with claim_output(storage, token="mine"):
        start_run(open_run(job, storage, token="mine"), storage)

    made = Preparer(job, token="mine").prepare(0)

    assert made.error is not None
    assert storage.list(rundir.PREPARED) == []
