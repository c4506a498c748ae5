"""Events -> lines, a bar, a summary."""

import io

from hypothesis import given
from hypothesis import strategies as st

from rowmill.events import Progress, Summary, Verdict
from rowmill.progress import (
    Bar,
    Lines,
    Pace,
    open_progress,
    progress_line,
    summary_lines,
)
from rowmill.telemetry import GpuUse, Sample


def at(seconds: float, done: int, *, resumed: int = 0) -> Progress:
    return Progress(done=done, ok=done, failed=0, total=1000, seconds=seconds, resumed=resumed)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_tells_rows_rates_failures_and_time_left() -> None:
    pace = Pace()
    event = Progress(
        done=200,
        ok=198,
        failed=2,
        total=1000,
        in_flight=64,
        prompt_tokens=3000,
        output_tokens=1000,
        seconds=10.0,
    )
    pace.add(event)

    line = progress_line(event, pace)

    assert (
        line == "200/1,000 rows, 20 rows/s, 400 tokens/s, 2 failed, 64 in flight, 40.0 s left"
    )


def test_line_without_a_total_or_time_claims_neither() -> None:
    event = Progress(done=0, ok=0, failed=0, total=0)

    assert progress_line(event, Pace()) == "0 rows, 0 failed, 0 in flight"


def test_rows_of_an_earlier_process_are_not_in_the_rate() -> None:
    pace = Pace()
    pace.add(at(10.0, 600, resumed=500))

    assert pace.rates() == (10.0, 0.0)


def test_pace_forgets_what_is_older_than_its_window() -> None:
    pace = Pace()
    for second in range(0, 200, 10):
        pace.add(at(float(second), 1000 if second < 100 else 1000 + 2 * (second - 100)))

    assert pace.rates()[0] == 2.0


def test_pace_begins_anew_where_the_engines_start_is_taken_off_the_time() -> None:
    pace = Pace()
    for seconds, done in ((90.0, 0), (1.0, 10), (2.0, 30)):
        pace.add(at(seconds, done))

    assert pace.rates()[0] == 20.0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**9)), max_size=30))
def test_pace_is_never_negative_and_its_memory_bounded_by_time(
    steps: list[tuple[float, int]],
) -> None:
    pace, seconds, done = Pace(), 0.0, 0
    for step_s, rows in steps:
        seconds, done = seconds + step_s, done + rows
        pace.add(at(seconds, done))

        assert min(pace.rates()) >= 0


def test_lines_are_the_first_event_and_the_last() -> None:
    lines: list[str] = []

    with open_progress(lines.append, stream=io.StringIO(), every_s=3600) as listen:
        for done in (1, 2, 3):
            listen(at(float(done), done))

    assert [line.split(" ")[0] for line in lines] == ["1/1,000", "3/1,000"]


def test_each_event_is_a_line_where_no_time_must_pass() -> None:
    lines: list[str] = []
    view = Lines(lines.append, every_s=0)

    for done in (1, 2, 3):
        view(at(float(done), done))
    view.close()

    assert len(lines) == 3


def test_other_events_are_passed_over() -> None:
    lines: list[str] = []

    with open_progress(lines.append, stream=io.StringIO(), every_s=0) as listen:
        listen("something else")

    assert lines == []


def test_terminal_gets_a_bar_and_no_lines() -> None:
    lines: list[str] = []
    terminal = Terminal()

    with open_progress(lines.append, stream=terminal) as listen:
        assert isinstance(listen, Bar)
        listen(at(1.0, 500))

    assert lines == []
    assert "500/1,000 rows" in terminal.getvalue()


def test_summary_tells_counts_errors_results_and_what_to_do() -> None:
    summary = Summary(
        total=20,
        ok=10,
        failed=4,
        not_done=6,
        copied=2,
        prompt_tokens=900,
        cached_tokens=300,
        output_tokens=100,
        asked=14,
        new_tokens=1000,
        truncated=1,
        seconds=10.0,
        engine_start_s=2.5,
        output="out",
        results=["results/part-0.jsonl", "results/part-1.jsonl"],
        errors=[("invalid", "`temperature` is N", 3), ("too_long", "a\x1b[31m\nb", 1)],
        stopped="`run.max_hours` is reached",
        exit_code=5,
    )

    assert summary_lines(summary) == [
        "stopped: 20 rows in 10.0 s (and 2.5 s to start the engine):"
        " 10 ok, 4 failed, 6 not done, 2 copied from equal rows",
        "  why: `run.max_hours` is reached",
        "  tokens: 900 in (300 cached), 100 out, 100 tokens/s",
        "  cut short: 1 answers (10.0% of the ok rows) ended at a token limit,"
        " `finish_reason` is `length`; raise `sampling.max_tokens` if that is not meant",
        "  3 x invalid: `temperature` is N",
        "  1 x too_long: a [31m b",
        "  results: out/results/part-0.jsonl and 1 more",
        "  resume: run the same command again; 6 rows are left",
        "  look: rowmill status out; rowmill report out makes a page of it",
    ]


def test_a_start_that_had_nothing_to_ask_says_so() -> None:
    before = Summary(
        total=5, ok=4, failed=1, not_done=0, prompt_tokens=9, seconds=1.0, output="o"
    )

    lines = summary_lines(before)

    assert lines[0].startswith("done before, nothing to ask: 5 rows")
    assert "tokens/s" not in "".join(lines)
    assert "  again: rowmill retry o asks the failed rows once more" in lines


def test_summary_of_no_rows_is_one_line() -> None:
    assert summary_lines(Summary(total=0, ok=0, failed=0, not_done=0)) == [
        "done: 0 rows: 0 ok, 0 failed"
    ]


def test_summary_shows_the_five_most_frequent_errors() -> None:
    errors = [(f"kind{i}", "x" * 1000, 10 - i) for i in range(7)]
    summary = Summary(total=49, ok=0, failed=49, not_done=0, asked=49, errors=errors)

    lines = summary_lines(summary)

    assert [line.split(" x ")[0].strip() for line in lines[1:-1]] == ["10", "9", "8", "7", "6"]
    assert lines[-1] == "  and 2 more kinds of errors"
    assert max(map(len, lines)) < 300


def test_summary_tells_what_the_run_waited_for_unless_it_was_too_short() -> None:
    def told(verdict: Verdict) -> list[str]:
        lines = summary_lines(Summary(total=1, ok=1, failed=0, not_done=0, verdict=verdict))
        return [line for line in lines if line.startswith(("  slow", "  fine"))]

    slow = Verdict(station="seats", says="seats are few", remedy="raise them")
    fine = Verdict(station="GPU compute", says="it computes", is_well=True)

    assert ["  slow: seats are few; raise them"] == told(slow)
    assert ["  fine: it computes"] == told(fine)
    assert [] == told(Verdict(station="", says="too short"))


def test_line_tells_caches_gpus_and_money_where_they_are_known() -> None:
    lines: list[str] = []
    view = Lines(lines.append, every_s=0.0)
    view(Sample(gpus=[GpuUse(index=0, use=0.9), GpuUse(index=1, use=0.8)]))
    queues = {"engine_kv_use": 0.25, "engine_hit_rate": 0.5}
    view(Progress(done=1, ok=1, failed=0, total=2, cost=1.5, queues=queues))
    view(Progress(done=1, ok=1, failed=0, total=2))

    assert [
        "1/2 rows, 0 failed, 0 in flight, KV 25%, cached 50%, GPU 85%, cost 1.50",
        "1/2 rows, 0 failed, 0 in flight, GPU 85%",
    ] == lines
