"""A report as people get it: in a browser, on a phone and a desk, by day and by night, by keyboard and by ear."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from rowmill.report.account import account_of
from rowmill.report.page import page_of
from rowmill.report.page.blocks import Drawn
from rowmill.report.writing import write_report
from tests.report.browser import SCREENSHOTS, Watched, browser, serious_findings
from tests.report.runs import OF_BEFORE, make_run, settings, with_gpus, write_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 100_000
WIDTHS, SCHEMES = (390, 1440), ("light", "dark")
PAGES = ("run", "against", "before", "gpus")
LEAST_PX = 11
"""Letters below cannot be read on a phone."""


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 rows with failures, retries and answers cut short, through an engine that takes its time."""
    more = {"engine.delay_s": 0.5, "engine.seats": 2048, "run.task_rows": 5000}
    return make_run(tmp_path_factory.mktemp("large"), ROWS, **more)


@pytest.fixture(scope="module")
def pages(large_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports: of a large run, of it beside another, of one of before, of one on GPUs."""
    folder = tmp_path_factory.mktemp("pages")
    other = make_run(folder / "other", 20_000, **{"engine.delay_s": 0.2, "engine.seats": 512})
    found = {name: folder / f"{name}.html" for name in PAGES}
    write_report(str(large_run), target=str(found["run"]))
    write_report(str(large_run), against=str(other), target=str(found["against"]))
    write_report(str(OF_BEFORE), target=str(found["before"]))
    gpus = with_gpus(large_run, folder / "gpus")
    write_report(str(gpus), target=str(found["gpus"]))
    return found


@pytest.mark.parametrize("name", PAGES)
def test_it_opens_without_a_complaint_and_asks_for_nothing(
    opened: Browser, pages: dict[str, Path], name: str
) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    for width, scheme in itertools.product(WIDTHS, SCHEMES):
        watched = Watched(opened, width=width, scheme=scheme)
        watched.page.goto(pages[name].as_uri())
        watched.page.screenshot(
            path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True
        )

        assert watched.complaints == []
        assert watched.asked == [pages[name].as_uri()]
        wide = watched.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        sizes = watched.page.evaluate(
            "[...document.querySelectorAll('svg text, p, td, th, dd, dt, li')]"
            ".map((one) => parseFloat(getComputedStyle(one).fontSize))"
        )
        assert min(sizes) >= LEAST_PX
        watched.close()


def test_a_page_is_small(pages: dict[str, Path]) -> None:
    assert all(path.stat().st_size < 2_000_000 for path in pages.values())


def test_plots_have_the_marks_of_their_numbers(
    opened: Browser, pages: dict[str, Path], large_run: Path
) -> None:
    watched = Watched(opened)
    watched.page.goto(pages["run"].as_uri())
    plots = [
        b.plot
        for s in page_of(account_of(str(large_run))).sections
        for b in s.blocks
        if isinstance(b, Drawn)
    ]

    assert {"rows", "tokens", "in_flight", "in", "out", "cpu", "memory"} <= {
        p.key for p in plots
    }
    for plot in plots:
        figure = watched.page.locator(f"#plot-{plot.key}")
        bars, curves = figure.locator("rect.bar"), figure.locator("svg.drawing path.curve")
        assert bars.count() == len(plot.bars)
        assert curves.count() == len(plot.curves)
        points = 0
        for curve in curves.all():
            path = curve.get_attribute("d") or ""
            points += len(re.findall("[ML]", path))
            box = curve.bounding_box()
            assert box is not None
            assert box["width"] > 100
        told = sum(len([c for c in row[1:] if c != "not told"]) for row in plot.table.rows)
        assert points + bars.count() == told
        heights = [bar.get_attribute("height") or "" for bar in bars.all()]
        assert not bars.count() or max(float(h.rstrip("%")) for h in heights) > 50
    watched.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious(
    opened: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    for width in WIDTHS:
        # axe is a script, and the page allows itself none.
        watched = Watched(opened, width=width, scheme=scheme, bypass_csp=True)
        watched.page.goto(pages[name].as_uri())
        watched.page.evaluate(
            "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
        )

        assert serious_findings(watched.page) == []
        watched.close()


def test_all_that_opens_opens_by_keyboard(opened: Browser, pages: dict[str, Path]) -> None:
    watched = Watched(opened)
    page = watched.page
    page.goto(pages["run"].as_uri())
    number = page.locator("summary").count()
    reached: set[str] = set()
    place = "(one) => [...document.querySelectorAll('summary')].indexOf(document.activeElement)"
    for _ in range(40 + 4 * number):
        page.keyboard.press("Tab")
        at = page.evaluate(place, None)
        if at >= 0 and str(at) not in reached:
            reached.add(str(at))
            page.keyboard.press("Enter")

    assert len(reached) == number > 10
    assert page.locator("details[open]").count() == number
    watched.close()


def test_the_first_tab_leads_past_the_links(opened: Browser, pages: dict[str, Path]) -> None:
    watched = Watched(opened)
    watched.page.goto(pages["run"].as_uri())
    watched.page.keyboard.press("Tab")
    watched.page.keyboard.press("Enter")

    assert watched.page.evaluate("document.activeElement.id") == "content"
    watched.close()


def test_what_is_heard_names_every_plot(opened: Browser, pages: dict[str, Path]) -> None:
    watched = Watched(opened)
    watched.page.goto(pages["run"].as_uri())
    images = watched.page.get_by_role("img")

    assert images.count() >= 8
    for image in images.all():
        expect(image).to_have_accessible_name(re.compile(r"\w{3}"))
    watched.close()


def test_the_command_does_it_again(small_run: Path, tmp_path: Path) -> None:
    """The lines on the page, in an empty folder, bring the same results."""
    from rowmill.report.page.of_job import command

    lines = command(account_of(str(small_run)))
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", lines], cwd=tmp_path, env=environment, timeout=120, check=False
    )

    assert done.returncode == 4  # some rows failed, as before
    assert answers(tmp_path / "again") == answers(small_run)


def answers(output: Path) -> list[tuple[str, str, str]]:
    parts = sorted((output / "results").iterdir())
    rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    return [(r["rowmill_row"], r["rowmill_status"], r["rowmill_text"]) for r in rows]


def test_a_run_is_watched_while_another_process_writes_it(
    opened: Browser, tmp_path: Path
) -> None:
    """From its first rows to its end: figures grow, what is open stays open, and Ctrl-C ends the watch, not the run."""
    output = tmp_path / "out"
    more = {"engine.delay_s": 0.5, "engine.seats": 100, "run.task_rows": 500}
    told = settings(write_rows(tmp_path, 6000), output, **more)
    sets = [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in told.items()]
    sets = [s for s in sets if not s.startswith(("source", "output", "engine.faults"))]
    command = [sys.executable, "-m", "rowmill", "run", str(told["source"]), "-o", str(output)]
    run = subprocess.Popen(
        [*command, *itertools.chain.from_iterable(("--set", s) for s in sets)],
        stderr=subprocess.PIPE,
        text=True,
    )
    watched, watch = Watched(opened), None
    try:
        assert run.stderr is not None
        for line in run.stderr:
            if re.match(r"[1-9][\d,]*/", line):
                break
        # What a shell begins in the background does not hear SIGINT, nor do its children.
        heard = ["env", "--default-signal=INT", sys.executable]
        watch = subprocess.Popen(
            [*heard, "-m", "rowmill", "watch", str(output)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watch.stdout is not None
        address = watch.stdout.readline().strip()
        page = watched.page
        page.goto(address)
        expect(page.locator("#state")).to_contain_text("Still running")
        first = done_rows(page.locator("#summary").inner_text())
        assert 0 < first < 6000
        page.locator("#plot-rows summary").press("Enter")
        looks = re.compile(r"[2-9]|\d\d+")
        expect(page.locator("html")).to_have_attribute("data-looks", looks, timeout=30_000)
        assert done_rows(page.locator("#summary").inner_text()) > first
        assert page.locator("#plot-rows details[open]").count() == 1
        assert page.evaluate("document.activeElement.closest('figure').id") == "plot-rows"
        run.stderr.read()
        assert run.wait(120) == 4
        expect(page.locator("#state")).to_contain_text("Finished", timeout=30_000)
        assert done_rows(page.locator("#summary").inner_text()) == 6000
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
        assert [c for c in watched.complaints if "ERR_CONNECTION_REFUSED" not in c] == []
        assert {asked for asked in watched.asked if not asked.startswith(address)} == set()
    finally:
        watched.close()
        for process in filter(None, (run, watch)):
            process.kill()
            process.communicate()


def done_rows(text: str) -> int:
    found = re.search(r"rows done\s+([\d,]+)", text)
    assert found is not None, shlex.quote(text)
    return int(found[1].replace(",", ""))
