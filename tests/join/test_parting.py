"""What results files are made of: rows of one start together, and kept where nothing would change."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.join.parting import Shape, cut_parts
from rowmill.journal import Again, TaskLog, read_commits
from rowmill.outcomes import pack
from rowmill.publish import Done, publish, read_done
from rowmill.read import open_source
from rowmill.record import Addition, Cut, Places, cut
from rowmill.rows import Outcome, pack_key
from rowmill.storage import LocalStorage
from rowmill.write.form import Form

ROW = '{"a":"some text of a row"}\n'
PART_BYTES = 2000
JSON_LINES = Form()


class Run:
    """A run of files of equal rows, in shards of ten, that others may join; answered as it grows."""

    def __init__(self, folder: Path, num_rows: int) -> None:
        self.folder, self.storage = folder, LocalStorage(str(folder / "out"))
        found = open_source([self._lay("f0", num_rows)], shard_bytes=len(ROW) * 10)
        self.files = found.files
        self.cut: Cut = cut(found.shards, num_lines=num_rows, task_rows=7)
        self._answer(range(self.cut.num_tasks))

    def join(self, num_rows: int, row: str = ROW) -> None:
        old = self.cut.num_tasks
        path = self._lay(f"f{len(self.files)}", num_rows, row)
        more = open_source(
            [path],
            shard_bytes=len(ROW) * 10,
            known=self.files,
            first_index=len(self.cut.shards),
        )
        self.files += more.files
        self.cut = self.cut.with_addition(Addition(more.files, more.shards))
        self._answer(range(old, self.cut.num_tasks))

    def fail_and_retry(self, task: int) -> None:
        before = read_commits(self.storage)[task]
        log = TaskLog(self.storage, task, 2, Again(before, 1, ()))
        assert log.commit("w")

    def publish(self, form: Form = JSON_LINES, *, part_bytes: int = PART_BYTES) -> Done:
        commits = list(read_commits(self.storage).values())
        return publish(
            self.storage, self.cut, commits, prefix="p_", part_bytes=part_bytes, form=form
        )

    def written(self) -> dict[str, int]:
        """When each part got its name."""
        folder = self.folder / "out/results"
        return {f"results/{path.name}": path.stat().st_mtime_ns for path in folder.iterdir()}

    def content(self, done: Done) -> bytes:
        return b"".join(self.storage.read(part.name) for part in done.parts)

    def _lay(self, name: str, num_rows: int, row: str = ROW) -> str:
        path = self.folder / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(row * num_rows, "utf-8")
        return str(path)

    def _answer(self, tasks: range) -> None:
        places = Places(self.cut)
        for task in tasks:
            log = TaskLog(self.storage, task, 1)
            slices = places.task_slices(task)
            keys = [pack_key(s.index, n) for s, a, b in slices for n in range(a, b)]
            log.put(pack([Outcome(key, "ok", text=f"answer {key}") for key in keys]))
            assert log.commit("w")


FORMS = [
    Form(),
    Form("jsonl", "gzip"),
    Form("csv"),
    Form("parquet", "zstd"),
    Form("arrow", "none"),
    Form("jsonl", "none", "completion"),
    Form("parquet", "zstd", "completion"),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_parts_of_rows_that_did_not_change_are_kept(tmp_path: Path, form: Form) -> None:
    run = Run(tmp_path, 60)
    first = run.publish(form)
    before, old = run.written(), {p.name: run.storage.read(p.name) for p in first.parts}
    run.join(25)

    second = run.publish(form)

    assert len(first.parts) > 1
    assert second.parts[: len(first.parts)] == first.parts
    assert {name: at for name, at in run.written().items() if name in before} == before
    assert all(run.storage.read(name) == content for name, content in old.items())
    assert sum(part.num_rows for part in second.parts) == 85
    assert read_done(run.storage) == second


def test_what_is_kept_is_what_would_be_written(tmp_path: Path) -> None:
    grown, anew = Run(tmp_path / "a", 60), Run(tmp_path / "b", 60)
    grown.publish()
    for run in (grown, anew):
        run.join(25)
        run.join(3)

    assert grown.content(grown.publish()) == anew.content(anew.publish())
    assert [p.num_rows for p in grown.publish().parts] == [
        p.num_rows for p in anew.publish().parts
    ]


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_parts_written_by_other_processes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Literal["jsonl", "parquet"]
) -> None:
    run = Run(tmp_path, 20)
    form = Form(format_, "zstd")
    here = run.publish(form)
    run.storage.remove("done.json")
    monkeypatch.setattr("rowmill.publish.INLINE_BYTES", 0)

    assert run.publish(form) == here
    assert len(here.parts) > 1


def test_a_retry_writes_the_parts_of_its_tasks_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, 60)
    first = run.publish()
    before = run.written()
    run.fail_and_retry(0)

    second = run.publish()

    after = run.written()
    assert len(first.parts) > 2
    changed = [name for name in before if before[name] != after[name]]
    assert changed == [first.parts[0].name]
    assert [p.digest for p in second.parts] == [p.digest for p in first.parts]


@pytest.mark.parametrize(
    "how", ["a part is gone", "a part is cut", "part_bytes", "format", "a column is new"]
)
def test_parts_that_would_differ_are_written_anew(tmp_path: Path, how: str) -> None:
    run = Run(tmp_path, 60)
    form: Form = Form("parquet", "zstd")
    first = run.publish(form)
    name = first.parts[0].name
    path = run.storage.path(name)
    assert path is not None
    run.join(5, '{"a":"x","b":1}\n' if how == "a column is new" else ROW)
    if how == "a part is gone":
        path.unlink()
    if how == "a part is cut":
        path.write_bytes(path.read_bytes()[:-1])
    part_bytes = 700 if how == "part_bytes" else PART_BYTES
    form = Form("parquet", "gzip") if how == "format" else form

    done = run.publish(form, part_bytes=part_bytes)

    assert sum(part.num_rows for part in done.parts) == 65
    assert {p.name for p in done.parts} == set(run.written())
    for part in done.parts:
        assert len(run.storage.read(part.name)) == part.num_bytes
    if how == "a column is new":
        assert done.parts[0].digest != first.parts[0].digest


def test_results_of_a_version_that_told_less_are_written_anew(tmp_path: Path) -> None:
    run = Run(tmp_path, 60)
    first = run.publish()
    told = msgspec.json.decode(run.storage.read("done.json"))
    del told["shape"]
    for part in told["parts"]:
        del part["num_units"], part["made_of"]
    run.storage.replace("done.json", msgspec.json.encode(told))

    assert run.publish().parts != first.parts or run.publish() == read_done(run.storage)
    run.join(5)
    assert sum(part.num_rows for part in run.publish().parts) == 65


ORDERS: list[Literal["input", "completion"]] = ["input", "completion"]


@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    part_bytes=st.sampled_from([300, 2000, 10**6]),
    published=st.lists(st.booleans(), min_size=4, max_size=4),
    order=st.sampled_from(ORDERS),
)
def test_each_row_is_in_one_part_however_the_run_grew(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    part_bytes: int,
    published: list[bool],
    order: Literal["input", "completion"],
) -> None:
    form = Form("jsonl", "none", order)
    run = Run(tmp_path_factory.mktemp("run") / "r", sizes[0])
    for size, is_published in zip(sizes[1:], published, strict=False):
        if is_published:
            run.publish(form, part_bytes=part_bytes)
        run.join(size)

    done = run.publish(form, part_bytes=part_bytes)

    lines = run.content(done).splitlines()
    wanted = [f"f{n}.jsonl:{at + 1}" for n, size in enumerate(sizes) for at in range(size)]
    found = [msgspec.json.decode(line)["p_row"] for line in lines]
    assert found == wanted
    assert {p.name for p in done.parts} == set(run.written())
    if order == "input":
        commits = list(read_commits(run.storage).values())
        specs = cut_parts(run.cut, commits, Shape("p_", part_bytes, form))
        assert all(len({shard.name for shard in spec.shards}) == 1 for spec in specs)
