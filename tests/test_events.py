"""The plan in words: which files are read."""

from __future__ import annotations

from rowmill.events import Planned, files_line


def planned(names: list[str], files: int, notes: list[str]) -> list[str]:
    event = Planned(
        engine="e",
        files=files,
        names=names,
        lines_in=3,
        resumed=0,
        checked=3,
        bad=0,
        prompt_tokens=9,
        levers=[],
        reasons={},
        notes=notes,
    )
    return [line for line in event.lines() if line.startswith("files")]


def test_files_are_named_where_there_are_several_or_some_were_passed_over() -> None:
    assert planned(["a"], 1, []) == []
    assert planned([], 0, ["passed over: empty files (1)"]) == []
    assert planned(["a"], 1, ["passed over: empty files (1)"]) == ["files   a"]
    assert planned(["a", "b"], 2, []) == ["files   a, b"]
    assert planned(["a", "b"], 3002, []) == ["files   a, b and 3,000 more"]


def test_names_that_could_move_the_cursor_are_escaped() -> None:
    assert files_line(["é", "\x1b[2J"], 2) == "é, \\x1b[2J"
