"""Rows -> windows: every row in one, and the end of each task told as soon as its rows are."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.config import Job
from rowmill.executors.opening import Opened, new_run, stations_of, understand
from rowmill.pipeline import Stations, TaskRows
from rowmill.read import open_source


def opened(folder: Path, lines: list[str], window_rows: int, task_rows: int) -> Opened:
    """A run over these lines, not begun."""
    source = folder / "in.jsonl"
    source.write_text("".join(f"{line}\n" for line in lines))
    job = Job.model_validate(
        {
            "source": str(source),
            "engine": {"name": "echo"},
            "plan": {"window_rows": window_rows},
            "run": {"task_rows": task_rows},
        }
    )
    return new_run(understand(job), open_source(job.source), "token")


def stations(run: Opened) -> Stations:
    return stations_of(run)


LINES = st.sampled_from(
    ['{"prompt": "abc"}', '{"prompt": 1}', "", "no JSON", '{"prompt": "d"}']
)


@settings(deadline=None, max_examples=60)
@given(
    lines=st.lists(LINES, max_size=40),
    window_rows=st.integers(1, 7),
    task_rows=st.integers(1, 9),
)
def test_every_row_is_in_one_window_and_a_task_ends_with_its_last(
    tmp_path_factory: object, lines: list[str], window_rows: int, task_rows: int
) -> None:
    run = opened(tmp_path_factory.mktemp("run"), lines, window_rows, task_rows)  # type: ignore[attr-defined]
    tasks = [
        TaskRows(task, list(run.places.task_slices(task)), set())
        for task in range(run.cut.num_tasks)
    ]
    seen: list[int] = []
    for window in stations(run).windows(tasks):
        assert window.num_rows <= window_rows
        seen += [*window.plan.prompts.keys, *(o.key for o in window.rejects)]
        for task, num_rows in window.ends:
            assert num_rows == sum(run.places.task_of(key) == task for key in seen)

    rows = [i for i, line in enumerate(lines) if line.strip()]
    assert rows == sorted(seen)


def test_tasks_end_while_later_ones_are_read(tmp_path: Path) -> None:
    run = opened(tmp_path, ['{"prompt": "a"}'] * 100, window_rows=10, task_rows=25)
    tasks = (TaskRows(i, list(run.places.task_slices(i)), set()) for i in range(4))

    windows = list(stations(run).windows(tasks))

    told_at = {task: at for at, window in enumerate(windows) for task, _ in window.ends}
    last_row_at = {
        run.places.task_of(key): at
        for at, window in enumerate(windows)
        for key in window.plan.prompts.keys
    }
    assert [0, 1, 2, 3] == sorted(told_at)
    assert all(told_at[task] - last_row_at[task] <= 1 for task in told_at)
