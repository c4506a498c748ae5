"""A run -> what became of its rows: lengths, seconds, failures by kind with rows, answers cut short, tries.

Promises: a row is named by its place and its id, never by its text.
Knows nothing of: HTML.
"""

from __future__ import annotations

from collections.abc import Callable

from rowmill.report.account import Account
from rowmill.report.lengths import Lengths
from rowmill.report.page import numbers
from rowmill.report.page.blocks import Block, Drawn, Listed, Section, Text
from rowmill.report.page.plots import Table, histogram
from rowmill.report.tally import Rows, Tally
from rowmill.shown.spans import duration

BARS = 24
SECOND_MS = 1000.0
Of = Callable[[Tally], Lengths]


def lengths(account: Account, other: Account | None) -> Section:
    """Tokens in and out, and seconds."""
    plots: list[Block] = []
    told: list[Block] = []
    for key, title, what, x_label, of in (
        ("in", "Lengths in", "prompts", "prompt tokens of a row", _prompts),
        ("out", "Lengths out", "answers", "tokens of a row's answers", _answers),
    ):
        found = of(account.tally)
        if found.longest:
            theirs = of(other.tally) if other is not None else Lengths()
            plots.append(_histogram(key, title, x_label, found, theirs))
            told.append(Text(f"{title}: {_spread(found)}."))
        else:
            told.append(Text(f"No {what} have been counted in tokens.", "quiet"))
    waits = account.tally.waits_ms
    if waits.longest:
        told.append(Text(f"From when the engine took a row to its answer: {_waits(waits)}."))
    return Section("lengths", "Lengths in and out", [*plots, *told])


def _prompts(tally: Tally) -> Lengths:
    return tally.prompts


def _answers(tally: Tally) -> Lengths:
    return tally.answers


def _histogram(key: str, title: str, x_label: str, found: Lengths, theirs: Lengths) -> Drawn:
    bins = found.bins(BARS)
    beside = theirs.bins_as(bins) if theirs.rows else []
    return Drawn(histogram(key, title, bins, x_label=x_label, other=beside))


def _spread(found: Lengths) -> str:
    return (
        f"{numbers.whole(found.rows)} rows, {numbers.amount(found.mean)} tokens on average,"
        f" half of them up to {numbers.whole(found.below(0.5))}, 95 % up to {numbers.whole(found.below(0.95))},"
        f" the longest {numbers.whole(found.longest)}"
    )


def _waits(waits: Lengths) -> str:
    middle, most = waits.below(0.5) / SECOND_MS, waits.below(0.95) / SECOND_MS
    longest = duration(waits.longest / SECOND_MS)
    return f"half of the rows within {duration(middle)}, 95 % within {duration(most)}, the longest {longest}"


def failures(account: Account) -> Section:
    """Failures by kind, each with its sentences and rows."""
    failed, blocks = account.status.failed, list[Block]()
    if not failed:
        told = "No row failed." if account.num_done else "No row has been answered yet."
        return Section(
            "failures", "Failures", [Text(told, "good" if account.num_done else "quiet")]
        )
    kinds = sorted(account.tally.failures.items(), key=lambda one: -one[1].number)
    heads = ["kind", "rows", "of all rows"]
    total = account.num_done
    table = [
        [kind, numbers.whole(r.number), numbers.share(r.number / total)] for kind, r in kinds
    ]
    blocks.append(Listed("Failures by kind", Table(heads, table)))
    for kind, rows in kinds:
        blocks += _of_kind(account, kind, rows)
    if account.names.note:
        blocks.append(Text(account.names.note, "quiet"))
    blocks.append(
        Text(f"`rowmill trace {account.output} FILE:LINE` tells the journey of one row.")
    )
    return Section("failures", "Failures", blocks)


def _of_kind(account: Account, kind: str, rows: Rows) -> list[Block]:
    counts = account.tally.counts
    sentences = [
        [counts.examples.get(shape, ""), numbers.whole(number)]
        for shape, number in sorted(counts.errors.items(), key=lambda one: -one[1])
        if shape.partition("\t")[0] == kind
    ]
    blocks: list[Block] = [
        Listed(
            f"{kind}: what was said, one of each sort",
            Table(["sentence", "rows"], sentences),
            is_prose=True,
        )
    ]
    return [*blocks, _rows(account, kind, rows)]


def _rows(account: Account, what: str, rows: Rows) -> Listed:
    named = account.named(rows.keys)
    first = f"the first {len(named)} of {numbers.whole(rows.number)} rows"
    if len(named) == rows.number:
        first = "the row" if rows.number == 1 else f"all {rows.number} rows"
    table = Table(["row", "its id"], [[row.place, row.id or "none"] for row in named])
    return Listed(f"{what}: {first}", table, is_hidden=True)


def truncated(account: Account) -> Section:
    """Answers that ended at a limit, and those that break what they are held to."""
    tally, well = account.tally, max(1, account.status.ok)
    blocks: list[Block] = []
    cut = tally.truncated
    if cut.number:
        blocks.append(
            Text(
                f"{numbers.whole(cut.number)} answers ({numbers.share(cut.number / well)} of the ok rows) ended at a"
                " token limit: their `finish_reason` is `length`. Raise `sampling.max_tokens` if that is not meant.",
                "bad",
            )
        )
        table = [
            [_limit(limit), numbers.whole(rows)]
            for limit, rows in sorted(tally.limits.items(), key=lambda one: -one[1])
        ]
        blocks.append(
            Listed("The limits they met", Table(["`max_tokens` in force", "answers"], table))
        )
        blocks.append(_rows(account, "Cut short", cut))
    else:
        told = "No answer ended at a token limit."
        blocks.append(Text(told, "good" if account.status.ok else "quiet"))
    if tally.violations.number:
        said = f"{numbers.whole(tally.violations.number)} rows have answers that break their schema, `regex` or `choices`."
        blocks += [Text(said, "bad"), _rows(account, "Off schema", tally.violations)]
    return Section("truncated", "Truncated answers", blocks)


def _limit(limit: int) -> str:
    return "others" if limit < 0 else numbers.whole(limit) if limit else "the context alone"


def tries(account: Account) -> Section:
    """How often rows were asked."""
    tally = account.tally
    again = sum(rows for attempts, rows in tally.tries.items() if attempts > 1)
    blocks: list[Block] = []
    if again:
        blocks.append(Text(f"{numbers.whole(again)} rows took more than one attempt."))
        rows = [[numbers.whole(a), numbers.whole(n)] for a, n in sorted(tally.tries.items())]
        blocks.append(Listed("Attempts a row", Table(["attempts", "rows"], rows)))
    else:
        blocks.append(Text("No row took more than one attempt.", "quiet"))
    retried = [
        (reason, number)
        for s in account.starts
        if s.summary
        for reason, number in s.summary.retries
    ]
    if retried:
        table = [[reason, numbers.whole(number)] for reason, number in retried]
        blocks.append(
            Listed("Requests that were made again", Table(["cause", "requests"], table))
        )
    for plan in account.retries:
        kinds = ", ".join(plan.kinds) or "all failures"
        blocks.append(
            Text(f"Retry {plan.number} asked {kinds} again, in {len(plan.tasks):,} tasks.")
        )
    if account.status.copied:
        told = f"{numbers.whole(account.status.copied)} rows took the answer of an equal row and were not asked."
        blocks.append(Text(told))
    return Section("tries", "Attempts and copies", blocks)
