"""Lines over time: nothing that was counted is lost, and shares stay shares."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.report import open_view
from rowmill.report.history import History, Start, history_of
from rowmill.report.timeline import MOST, Drawing, num_stretches, step_of, timeline_of
from tests.report.runs import OF_BEFORE

PARTS = st.integers(0, 1000).map(lambda number: number / 1000)
SPANS = st.lists(st.tuples(PARTS, PARTS, st.integers(0, 10**9)), min_size=1, max_size=20)


@given(st.floats(0.1, 1e7), SPANS)
def test_a_flow_is_spread_and_none_of_it_lost(
    seconds: float, spans: list[tuple[float, float, int]]
) -> None:
    drawing = Drawing(seconds)
    told = 0.0
    for one, other, value in spans:
        start, stop = sorted((one * seconds, other * seconds))
        drawing.add("rows", "flow", "rows", (start, stop), value)
        told += value if stop > start else 0

    assert amount_of(drawing, "rows") == pytest.approx(told, rel=1e-6, abs=1e-6)


def amount_of(drawing: Drawing, name: str) -> float:
    """What all stretches of a line hold together."""
    values = drawing.timeline().lines(name).get(name, [])
    covered = drawing.covered_s(name, name)
    return sum(
        (value or 0.0) * min(seconds, drawing.step_s)
        for value, seconds in zip(values, covered, strict=True)
    )


@given(st.floats(0.1, 1e7), SPANS)
def test_a_share_lies_between_those_that_were_told(
    seconds: float, spans: list[tuple[float, float, int]]
) -> None:
    drawing = Drawing(seconds)
    for one, other, value in spans:
        start, stop = sorted((one * seconds, other * seconds))
        drawing.add("kv", "share", "kv", (start, stop), value)
    found = drawing.timeline().lines("kv").get("kv", [])

    values = [value for _, _, value in spans]
    slack = 1e-6 * max(values)
    assert all(
        min(values) - slack <= value <= max(values) + slack
        for value in found
        if value is not None
    )


@given(st.floats(0.01, 1e9))
def test_there_are_as_many_stretches_as_a_page_can_show(seconds: float) -> None:
    assert 1 <= num_stretches(seconds, step_of(seconds)) <= MOST + 1


def start(began_at: float, seconds: float) -> Start:
    return Start(worker="w", began_at=began_at, seconds=seconds)


def test_the_axis_stands_still_where_nobody_worked() -> None:
    history = History.of([start(0, 100), start(50, 100), start(1000, 10)])

    assert history.seconds == 160
    assert history.worker_seconds == 210
    assert [history.axis_of(at) for at in (-5, 0, 75, 150, 500, 1000, 1005, 2000)] == [
        *(0, 0, 75, 150, 150, 150, 155, 160)
    ]
    assert [(pause.at, pause.seconds) for pause in history.pauses()] == [(150, 850)]


def test_a_run_of_before_is_told_by_its_progress_lines() -> None:
    view = open_view(str(OF_BEFORE))
    history = history_of(view)
    found = timeline_of(view, history)

    (only,) = history.starts
    assert found is not None
    assert only.last is not None
    # Read off the lines by hand: 50 rows at 5.203 s, of which the engine started for 5.203 - 4.151 s.
    assert only.last.done == 50
    assert history.seconds == pytest.approx(5.203)
    assert only.engine_start_s == pytest.approx(1.052, abs=0.001)
    assert found.lines("in_flight")["in flight"][-1] == pytest.approx(5.0, abs=0.5)
    rows = found.lines("rows")["rows"]
    widths = [*[1.0] * 5, 0.203]
    spread = sum((value or 0) * width for value, width in zip(rows, widths, strict=True))
    assert spread == pytest.approx(50, rel=0.001)


def test_two_starts_with_a_gap_keep_their_places(small_run: Path, tmp_path: Path) -> None:
    """Of a start that began an hour later, the samples lie behind those of the first one."""
    output = shutil.copytree(small_run, tmp_path / "out")
    (events,) = (output / "events").iterdir()
    text = events.read_text()
    head = text.index('"time":"') + len('"time":"')
    later = text[:head] + "2126-01-01" + text[head + 10 :]
    events.with_name("later-1-0.jsonl").write_text(later)

    view = open_view(str(output))
    history = history_of(view)

    assert [start.worker for start in history.starts][1] == "later-1"
    (pause,) = history.pauses()
    assert pause.at == pytest.approx(history.starts[0].seconds)
