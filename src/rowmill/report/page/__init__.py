"""A run, told -> one HTML page that needs no network, no script and no other file.

Promises: what comes from users (ids, names, sentences) is escaped wherever it stands; the page forbids itself to load
anything; the same account gives the same page.
Knows nothing of: where runs lie.
Memory: the page, some hundred KB.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from functools import cache

import jinja2
import msgspec

from rowmill.report.account import Account
from rowmill.report.page import headline, of_job, of_rows, over_time, versus
from rowmill.report.page.blocks import Section, Term, Text


class Page(msgspec.Struct, frozen=True):
    """What stands on a page."""

    name: str
    state: str
    looked: str
    figures: list[Term]
    sentences: list[Text]
    sections: list[Section]


def page_of(account: Account, other: Account | None = None) -> Page:
    """What a page tells of a run; beside another run, where there is one."""
    times = over_time.Times(account, other)
    sections = [versus.against(account, other)] if other is not None else []
    sections += [
        over_time.throughput(times),
        over_time.where_time_went(times),
        over_time.gpu(times),
        over_time.kv_cache(times),
        over_time.prefix_hits(times),
        over_time.machine(times),
        of_rows.lengths(account, other),
        of_rows.failures(account),
        of_rows.truncated(account),
        of_rows.tries(account),
        of_job.cost(account),
        of_job.settings(account),
        of_job.again(account),
        of_job.workers(account),
        of_job.versions(account),
    ]
    return Page(
        name=account.output,
        state=headline.state(account),
        looked=f"{account.looked:%Y-%m-%d %H:%M:%S} UTC",
        figures=headline.figures(account),
        sentences=headline.sentences(account),
        sections=sections,
    )


def html_of(page: Page, *, script: str = "") -> str:
    """The page as HTML.

    Args:
        script: what keeps it current; empty: it stands still.
    """
    environment = _environment()
    style = _text("style.css")
    allowed = f"default-src 'none'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    if script:
        allowed += f"; script-src '{_hash(script)}'; connect-src 'self'"
    return environment.get_template("page.html.j2").render(
        page=page,
        style=style,
        script=script,
        allowed=allowed,
        version=_version(),
    )


def live_script() -> str:
    """What brings a page of `watch` up to date."""
    return _text("live.js")


def _version() -> str:
    try:
        return importlib.metadata.version("rowmill")
    except importlib.metadata.PackageNotFoundError:
        return ""  # a source tree that was not installed


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("rowmill.report.page", "templates")
    return jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def _text(name: str) -> str:
    loader, environment = _environment().loader, _environment()
    assert loader is not None
    return loader.get_source(environment, name)[0]


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
