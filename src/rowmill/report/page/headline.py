"""A run -> the few figures and sentences that stand first.

Knows nothing of: HTML.
"""

from __future__ import annotations

from rowmill.events import Verdict
from rowmill.report.account import Account
from rowmill.report.page import numbers
from rowmill.report.page.blocks import Term, Text
from rowmill.shown.spans import duration

STATES = {
    "running": "still running",
    "interrupted": "interrupted: the same command goes on with it",
    "answered": "all rows are answered, results are not published yet",
    "finished": "finished",
}


def state(account: Account) -> str:
    """Where the run stands, in words."""
    status = account.status
    owner = f", by {status.owner}" if status.owner else ""
    ended = f", last heard of at {_clock(account.ended)}" if account.ended else ""
    told = STATES.get(status.state, status.state).capitalize()
    return f"{told}{owner}. Began at {_clock(account.record.started)}{ended}"


def _clock(moment: str) -> str:
    """ISO 8601 as people read it."""
    return moment.replace("T", " ").replace("+00:00", " UTC")


def figures(account: Account) -> list[Term]:
    """What everybody looks for."""
    status, total = account.status, account.status.total
    done = account.num_done
    terms = [
        Term(
            "rows done",
            numbers.whole(done),
            f"of {numbers.whole(total)}"
            + (f", {numbers.share(done / total)}" if total else ""),
        ),
        Term("failed", numbers.whole(status.failed), _share_of(status.failed, done)),
        Term(
            "cut short", numbers.whole(status.truncated), _share_of(status.truncated, status.ok)
        ),
    ]
    if account.asked_s:
        terms += [
            Term("rows a second", numbers.amount(account.rows_s), ""),
            Term(
                "tokens a second",
                numbers.amount(account.tokens_s),
                "in and out",
            ),
            Term(
                "time worked",
                duration(account.history.seconds),
                _starting(account),
            ),
        ]
    terms += [
        Term("tokens in", numbers.amount(status.prompt_tokens), _cached(account)),
        Term("tokens out", numbers.amount(status.output_tokens), ""),
    ]
    if account.cost is not None:
        terms.append(
            Term("cost", numbers.money(account.cost.amount), "at the prices of `[run]`")
        )
    return terms


def _starting(account: Account) -> str:
    starting = duration(sum(start.engine_start_s for start in account.starts))
    if len(account.starts) == 1:
        return f"{starting} of it the engine's start"
    return (
        f"by {len(account.starts):,} starts of workers; their engines took {starting} to start"
    )


def _word(verdict: Verdict) -> str:
    return "Fine" if verdict.is_well else "Slow"


def _share_of(part: int, whole: int) -> str:
    return f"{numbers.share(part / whole)} of them" if part and whole else ""


def _cached(account: Account) -> str:
    status = account.status
    if not status.cached_tokens:
        return ""
    return f"{numbers.share(status.cached_tokens / status.prompt_tokens)} from the cache"


def sentences(account: Account) -> list[Text]:
    """What is to be looked at."""
    status, found = account.status, list[Text]()
    if account.verdict is not None and account.verdict.station:
        tone = "good" if account.verdict.is_well else "bad"
        found.append(Text(f"{_word(account.verdict)}: {account.verdict.line()}.", tone))
    summary = account.summary
    if summary is not None and summary.stopped and status.state != "finished":
        found.append(Text(f"It stopped before its input did: {summary.stopped}", "bad"))
    if status.not_done and status.state == "interrupted":
        found.append(
            Text(
                f"{numbers.whole(status.not_done)} rows are left: the same command goes on with them.",
                "bad",
            )
        )
    if (
        not status.failed
        and not status.truncated
        and not status.violations
        and status.state == "finished"
    ):
        found.append(Text("Every row has its answer, and none was cut short.", "good"))
    return found
