"""Two runs -> what differs: settings, versions, input, and the figures side by side.

Promises: a setting that only one of them has is told, as is one that both have at different values; equal ones are not.
Knows nothing of: HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rowmill.report.account import Account
from rowmill.report.page import numbers
from rowmill.report.page.blocks import Block, Listed, Section, Text
from rowmill.report.page.of_job import shown
from rowmill.report.page.plots import Table
from rowmill.retries import PLACES
from rowmill.shown.spans import duration

ABSENT = "not set"
HEADS = ["", "this run", "the other run"]
Figure = Callable[[Account], float]
Shown = Callable[[float], str]


def against(account: Account, other: Account) -> Section:
    """This run beside another."""
    blocks: list[Block] = [
        Text(f"This run: {account.output}. The other run: {other.output}."),
        Listed("Figures", _figures(account, other)),
    ]
    for caption, none, mine, theirs in (
        ("Settings that differ", "No setting differs.", _settings(account), _settings(other)),
        ("Derived values that differ", "", _reasons(account), _reasons(other)),
        ("Versions that differ", "", account.record.versions, other.record.versions),
        ("Input that differs", "Both have the same input.", _files(account), _files(other)),
    ):
        rows = differing(mine, theirs)
        if rows:
            blocks.append(Listed(caption, Table(HEADS, rows)))
        elif none:
            blocks.append(Text(none, "quiet"))
    return Section("against", "Beside the other run", blocks)


def differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[list[str]]:
    """(name, here, there) of what is not the same."""
    return [
        [
            name,
            shown(mine[name]) if name in mine else ABSENT,
            shown(theirs[name]) if name in theirs else ABSENT,
        ]
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name, None) != theirs.get(name, None) or (name in mine) != (name in theirs)
    ]


def _settings(account: Account) -> dict[str, Any]:
    return {name: value for name, value in account.settings.items() if name not in PLACES}


def _reasons(account: Account) -> dict[str, str]:
    told = account.planned.reasons if account.planned is not None else {}
    return account.record.reasons | told


def _files(account: Account) -> dict[str, str]:
    return {
        file.name: f"{file.num_lines:,} lines, {numbers.size(file.size)}"
        for file in account.record.files
    }


FIGURES: list[tuple[str, Figure, Shown]] = [
    ("rows done", lambda a: a.num_done, numbers.whole),
    ("rows ok", lambda a: a.status.ok, numbers.whole),
    ("rows failed", lambda a: a.status.failed, numbers.whole),
    ("answers cut short", lambda a: a.status.truncated, numbers.whole),
    ("time worked", lambda a: a.history.seconds, duration),
    ("engine's start", lambda a: sum(s.engine_start_s for s in a.starts), duration),
    ("rows a second", lambda a: a.rows_s, numbers.amount),
    ("tokens a second, in and out", lambda a: a.tokens_s, numbers.amount),
    ("tokens in", lambda a: a.status.prompt_tokens, numbers.amount),
    ("tokens out", lambda a: a.status.output_tokens, numbers.amount),
    ("prompt tokens from the cache", lambda a: a.status.cached_tokens, numbers.amount),
    ("cost", lambda a: a.cost.amount if a.cost is not None else 0.0, numbers.money),
]


def _figures(account: Account, other: Account) -> Table:
    rows = []
    for name, figure, tell in FIGURES:
        mine, theirs = figure(account), figure(other)
        if mine or theirs:
            ratio = numbers.times(mine / theirs) if theirs else ""
            rows.append([name, tell(mine), tell(theirs), ratio])
    return Table([*HEADS, "this / other"], rows)
