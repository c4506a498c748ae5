"""A run -> what it was told to do and why it did it so: settings with reasons, cost, versions, the command that does it again.

Promises: settings that were given stand apart from those that were derived; secrets are references, as in the run itself.
Knows nothing of: HTML.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from rowmill.report.account import Account
from rowmill.report.page import numbers
from rowmill.report.page.blocks import Block, Code, Listed, Section, Term, Terms, Text
from rowmill.report.page.plots import Table
from rowmill.shown.spans import duration
from rowmill.shown.toml_text import toml_of

END = "ROWMILL_JOB"
MAX_FILES = 50
MAX_CHARS = 2000


def cost(account: Account) -> Section:
    """Money and time, said before and after."""
    blocks: list[Block] = []
    found = account.cost
    if found is None:
        told = (
            "No price is known: set `run.gpu_hour_price`, or for an endpoint"
            " `run.prompt_million_price` and `run.output_million_price`."
        )
        blocks.append(Text(told, "quiet"))
    else:
        blocks.append(
            Text(
                f"{numbers.money(found.amount)} so far, in the currency of the prices: {found.how}."
            )
        )
        tokens = account.status.prompt_tokens + account.status.output_tokens
        if tokens and account.num_done:
            blocks.append(
                Terms(
                    [
                        Term(
                            "for 1,000 rows",
                            numbers.money(found.amount / account.num_done * 1e3),
                        ),
                        Term(
                            "for a million tokens, in and out",
                            numbers.money(found.amount / tokens * 1e6),
                        ),
                    ]
                )
            )
    blocks += _forecast(account)
    return Section("cost", "Cost and time", blocks)


def _forecast(account: Account) -> list[Block]:
    said = account.forecast
    if said is None:
        planned = account.planned
        if planned is not None and planned.forecast:
            return [Text(f"Said before: {' '.join(planned.forecast)}")]
        return [Text("Nothing was forecast.", "quiet")]
    terms = [
        Term(
            "said before",
            duration(said.seconds),
            f"{duration(said.low_s)} to {duration(said.high_s)}",
        ),
        Term("no schedule takes less than", duration(said.ideal_s)),
    ]
    summary = account.summary
    if summary is not None and summary.seconds and not summary.stopped:
        terms.insert(1, Term("it took", duration(summary.seconds)))
        terms.append(
            Term(
                "of the speed that no schedule can beat",
                numbers.share(said.ideal_s / summary.seconds),
            )
        )
    return [Terms(terms)]


def settings(account: Account) -> Section:
    """Settings with their reasons."""
    identity = account.record.identity
    given = [
        Term(
            f"`{name}`",
            shown(value),
            "part of the identity: it can change answers" if name in identity else "",
        )
        for name, value in sorted(account.settings.items())
    ]
    reasons = dict(account.record.reasons)
    if account.planned is not None:
        reasons |= account.planned.reasons
    blocks: list[Block] = [
        Text("Given in the job; what is not here is at its default."),
        Terms(given),
        Text("Derived, with the reason:"),
        Terms([Term(f"`{name}`", "", why) for name, why in sorted(reasons.items())]),
    ]
    engine = _engine(account)
    if engine:
        blocks += [Text("The engine, once it was open:"), Terms(engine)]
    for plan in account.retries:
        changed = [Term(f"`{name}`", shown(value)) for name, value in plan.settings.items()]
        if changed:
            blocks += [Text(f"Changed by retry {plan.number}:"), Terms(changed)]
    return Section("settings", "Settings and their reasons", blocks)


def _engine(account: Account) -> list[Term]:
    ready = account.ready
    if ready is None:
        about = account.planned.engine if account.planned is not None else ""
        return [Term("about", about)] if about else []
    terms = [
        Term("about", ready.about),
        Term("start", duration(ready.start_s)),
        Term("seats", numbers.whole(ready.seats)),
        Term("replicas", numbers.whole(ready.replicas)),
    ]
    if ready.step_tokens:
        terms.append(Term("tokens of a step", numbers.whole(ready.step_tokens)))
    if ready.kv_tokens:
        terms.append(Term("tokens of KV cache", numbers.whole(ready.kv_tokens)))
    if ready.gpus:
        terms.append(Term("GPUs", ", ".join(ready.gpus)))
    return terms


def shown(value: Any) -> str:
    """A setting as a job file has it, about; what is very long is cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (
        text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}... ({len(text):,} characters)"
    )


def versions(account: Account) -> Section:
    """What made the answers, and of which files."""
    record = account.record
    terms = [Term(name, version) for name, version in record.versions.items()]
    files = [
        [file.name, numbers.whole(file.num_lines), numbers.size(file.size)]
        for file in record.files[:MAX_FILES]
    ]
    more = len(record.files) - len(files)
    caption = "Input files" + (
        f", the first {MAX_FILES} of {len(record.files):,}" if more else ""
    )
    blocks: list[Block] = [
        Terms(terms),
        Listed(caption, Table(["file", "lines", "size"], files)),
    ]
    return Section("versions", "Versions and input", blocks)


def workers(account: Account) -> Section:
    """Who worked, and what was told meanwhile."""
    rows = [
        [
            start.worker,
            _clock(start.began_at),
            duration(start.seconds),
            duration(start.engine_start_s),
            start.began.host if start.began is not None else "not known",
        ]
        for start in account.starts
    ]
    heads = ["worker", "began", "worked for", "engine's start", "machine"]
    blocks: list[Block] = []
    if rows:
        caption = f"{len(rows):,} start{'' if len(rows) == 1 else 's'} of workers"
        blocks.append(Listed(caption, Table(heads, rows[:MAX_FILES])))
    else:
        blocks.append(Text("No events lie at the output.", "quiet"))
    notes = [[duration(at), text] for at, text in account.history.notes()]
    if notes:
        blocks.append(
            Listed("What was told while it ran", Table(["after", "note"], notes), is_prose=True)
        )
    return Section("workers", "Workers and notes", blocks)


def _clock(moment: float) -> str:
    import datetime

    at = datetime.datetime.fromtimestamp(moment, datetime.UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def again(account: Account) -> Section:
    """The command that does it again."""
    blocks: list[Block] = [
        Text(
            "These lines, in an empty folder of a machine that has the input, do the same work again"
            " into a new output; rowmill and the engine are those under Versions."
        ),
        Code("Shell", command(account)),
    ]
    if "-" in account.record.job.get("source", []):
        blocks.append(Text("The input came by standard input: give it again the same way."))
    return Section("again", "Do it again", blocks)


def command(account: Account) -> str:
    """Lines for a shell: the job as it was given, and its retries."""
    tree = {name: part for name, part in account.record.job.items() if name != "output"}
    output = {k: v for k, v in account.record.job.get("output", {}).items() if k != "path"}
    if output:
        tree["output"] = output
    job = toml_of(tree)
    lines = [f"cat > job.toml <<'{END}'\n{job}{END}", "rowmill run job.toml -o again"]
    for plan in account.retries:
        kinds = "".join(f" --kind {shlex.quote(kind)}" for kind in plan.kinds)
        sets = "".join(
            f" --set {shlex.quote(f'{name}={_setting(value)}')}"
            for name, value in plan.settings.items()
            if value is not None
        )
        lines.append(f"rowmill retry again{kinds}{sets}")
    return "\n".join(lines) + "\n"


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
