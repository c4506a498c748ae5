"""A page: nothing on it is taken for HTML that is not ours, nothing is fetched, what is not known is said."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rowmill.report.account import account_of
from rowmill.report.page import html_of, live_script, numbers, page_of
from rowmill.report.page.blocks import Drawn
from rowmill.report.writing import report_html
from tests.report.runs import HOSTILE_FILE, HOSTILE_ID, OF_BEFORE, make_run, with_gpus

POLICY = "Content-Security-Policy"
EMPTY = frozenset(("meta", "link", "br", "img", "input", "path", "rect", "line"))


class Reader(HTMLParser):
    """Tags, their attributes, and text; every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text += " "
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def small(small_run: Path) -> Reader:
    return Reader(report_html(str(small_run)))


def test_what_users_wrote_is_text(small: Reader) -> None:
    assert small.all("script") == []
    assert HOSTILE_ID in small.text
    assert f"{HOSTILE_FILE}:1501" in small.text


def test_nothing_is_loaded(small: Reader) -> None:
    assert small.all("img") == []
    addresses = [
        value
        for _, attributes in small.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "xlink:href", "srcset")
    ]
    assert [a for a in addresses if not (a or "").startswith(("#", "data:,"))] == []
    (policy,) = [m["content"] for m in small.all("meta") if m.get("http-equiv") == POLICY]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_every_id_is_there_once_and_every_link_leads_somewhere(small: Reader) -> None:
    ids = [a["id"] for _, a in small.tags if a.get("id")]

    assert len(ids) == len(set(ids))
    links = [str(a["href"])[1:] for a in small.all("a")]
    named = [name for _, a in small.tags for name in (a.get("aria-labelledby") or "").split()]
    assert set(links) | set(named) <= set(ids)


def test_a_plot_names_its_axes_and_has_its_numbers(small_run: Path) -> None:
    page = page_of(account_of(str(small_run)))
    plots = [b.plot for s in page.sections for b in s.blocks if isinstance(b, Drawn)]

    assert {"in", "out"} <= {plot.key for plot in plots}
    for plot in plots:
        assert plot.x_label
        assert plot.y_label
        assert plot.description
        assert plot.table.rows
        assert all(len(row) == len(plot.table.heads) for row in plot.table.rows)
        marks = sum(curve.points for curve in plot.curves) + len(plot.bars)
        assert marks >= len(plot.table.rows)


def test_figures_are_those_of_the_run(small: Reader, small_run: Path) -> None:
    status = account_of(str(small_run)).status

    text = re.sub(r"\s+", " ", small.text)
    assert f"rows done {status.ok + status.failed:,} of {status.total:,}" in text
    assert f"failed {status.failed:,}" in text
    assert f"cut short {status.truncated:,}" in text


def test_rates_are_those_that_the_run_told_at_its_end(small_run: Path) -> None:
    account = account_of(str(small_run))
    summary = account.summary

    assert summary is not None
    assert account.rows_s == pytest.approx(summary.asked / summary.seconds, rel=0.02)
    assert account.tokens_s == pytest.approx(summary.new_tokens / summary.seconds, rel=0.02)
    assert account.cost is not None
    assert account.cost.amount == summary.cost > 0


def test_names_in_sentences_are_set_apart_and_ids_stand_as_they_are(small_run: Path) -> None:
    html = report_html(str(small_run))

    assert "column <code>text</code> is absent" in html
    assert "column `text` is absent" not in html


def test_what_is_not_known_is_said_and_not_drawn() -> None:
    found = Reader(report_html(str(OF_BEFORE)))

    keys = {a.get("id") for a in found.all("figure")}
    assert {"plot-rows", "plot-tokens", "plot-in_flight", "stack-seats"} <= keys
    assert not {"plot-gpu_use", "plot-kv_use", "plot-cpu", "plot-hit_rate"} & keys
    assert "Nothing is known of GPUs: this run was written by a version" in found.text
    assert "The engine told nothing of a KV cache." in found.text
    assert "Rows are named by their places alone" in found.text


def test_gpus_caches_and_bounds_are_drawn(small_run: Path, tmp_path: Path) -> None:
    account = account_of(str(with_gpus(small_run, tmp_path / "out")))
    page = page_of(account)

    plots = {
        b.plot.key: b.plot for s in page.sections for b in s.blocks if isinstance(b, Drawn)
    }
    assert ["GPU 0", "GPU 1"] == [curve.name for curve in plots["gpu_use"].curves]
    assert ["tensor cores", "memory bandwidth"] == [c.name for c in plots["gpu_inside"].curves]
    assert all(
        "120 GiB" in c.told.replace(numbers.UNIT, " ") for c in plots["gpu_memory"].curves
    )
    assert {"kv_use", "engine_rows", "gpu_power"} <= plots.keys()
    hits = {
        curve.name: curve.told.replace(numbers.UNIT, " ") for curve in plots["hit_rate"].curves
    }
    assert hits["measured"].startswith("60 %")
    assert hits["the plan's forecast"].startswith("70 %")
    assert hits["bound: room for all"].startswith("80 %")
    text = re.sub(r"\s+", " ", Reader(html_of(page)).text)
    assert "7 rows gave way for want of KV cache" in text
    assert "With room for all, any order would find 80 %" in text
    assert account.cost is not None
    assert " x 2 at 2" in account.cost.how


def test_a_run_without_events_has_a_report(small_run: Path, tmp_path: Path) -> None:
    output = shutil.copytree(small_run, tmp_path / "out")
    shutil.rmtree(output / "events")

    found = Reader(report_html(str(output)))

    assert "No events lie at the output" in found.text
    assert "3,000" in found.text


def test_what_is_not_known_yet_is_said(small_run: Path, tmp_path: Path) -> None:
    """The engine starts: the worker has begun, and that is all."""
    output = shutil.copytree(small_run, tmp_path / "out")
    (events,) = (output / "events").iterdir()
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines if '"event":"began"' in line))
    for name in ("commits", "segments", "results"):
        shutil.rmtree(output / name)

    found = Reader(report_html(str(output)))

    assert "No row has been answered yet." in found.text
    assert "Nothing is known of GPUs yet." in found.text
    assert found.all("figure") == []


def test_a_run_of_no_rows_has_a_report(tmp_path: Path) -> None:
    source = tmp_path / "none.jsonl"
    source.write_text("\n\n")
    import rowmill

    job = rowmill.load_job(
        None,
        settings={
            "source": str(source),
            "output.path": str(tmp_path / "out"),
            "prompt": "{x}",
            "engine.name": "echo",
        },
    )
    rowmill.run(job)

    found = Reader(report_html(str(tmp_path / "out")))

    assert "No row has been answered yet." in found.text


def test_two_runs_stand_side_by_side(small_run: Path, tmp_path: Path) -> None:
    more = {"sampling.max_tokens": 30, "engine.seats": 64}
    other = make_run(tmp_path / "other", 1000, **more)

    found = Reader(report_html(str(small_run), against=str(other)))

    text = re.sub(r"\s+", " ", found.text)
    assert "sampling.max_tokens 60 30" in text
    assert "engine.seats not set 64" in text
    assert "engine.name not set" not in text
    assert "rows done 3,000 1,000 3.00 x" in text
    assert "rows of this run rows of the other run" in text


def test_a_page_that_stands_still_has_no_script_and_a_live_one_has_its_own(
    small_run: Path,
) -> None:
    page = page_of(account_of(str(small_run)))

    assert Reader(html_of(page)).all("script") == []
    live = Reader(html_of(page, script=live_script()))
    assert len(live.all("script")) == 1
    (policy,) = [m["content"] for m in live.all("meta") if m.get("http-equiv") == POLICY]
    assert policy is not None
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.034, "0.034"),
        (3.14159, "3.14"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (999_999, "999,999"),
        (27_338_556, "27.3 million"),
        (4.5e9, "4.5 billion"),
    ],
)
def test_numbers_have_the_digits_that_say_something(number: float, text: str) -> None:
    assert text == numbers.amount(number).replace(numbers.UNIT, " ")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.99999, "over 99.9 %"),
        (0.00001, "under 0.1 %"),
        (0.436, "43.6 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part: float, text: str) -> None:
    assert text == numbers.share(part).replace(numbers.UNIT, " ")
