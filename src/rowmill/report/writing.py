"""Output -> its report, one HTML file. Nothing else is changed there.

Promises: the file is replaced whole; an input or another file of the run is never written over.
Memory: see account.py; the page.
"""

from __future__ import annotations

import contextlib

import msgspec

from rowmill import rundir
from rowmill.report.account import account_of
from rowmill.report.export import check_target
from rowmill.report.page import html_of, page_of
from rowmill.report.run import open_view, run_of
from rowmill.storage import place_of


class Reported(msgspec.Struct, frozen=True):
    """What was written."""

    path: str
    num_bytes: int


def write_report(output: str, *, against: str = "", target: str = "") -> Reported:
    """Write what is to be said of a run.

    Args:
        against: another run, put beside it; empty: none.
        target: file or object to write; empty: `report.html` at the output.

    Raises:
        ConfigError: there is no such run, or the target cannot be written over.
        StorageError: something cannot be read or written.
    """
    path = target or f"{run_of(output).rstrip('/')}/{rundir.REPORT}"
    storage, name = place_of(path)
    if target:
        check_target(open_view(output), output, target)
    content = report_html(output, against=against).encode()
    with storage.traceless() if target else contextlib.nullcontext():
        storage.replace(name, content)
    return Reported(path, len(content))


def report_html(output: str, *, against: str = "") -> str:
    """The report itself. Raises: as `write_report`."""
    other = account_of(against) if against else None
    return html_of(page_of(account_of(output), other))
