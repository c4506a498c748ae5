"""A page in the machine's own Chromium, without a network: what it asked for, what it complained of, how it looks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "screenshots"
"""Kept for people to look at; not under version control."""
AXE = ROOT / ".venv" / "axe" / "package" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without these a browser looks for updates at its start, and for who it is asked by.
QUIET = [
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check"),
]
SERIOUS = ("serious", "critical")


def chromium() -> str:
    """Where the browser is; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(
            "no Chromium on this machine: `make browser` installs one; no page was opened"
        )
    return found


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser of one test."""
    # Chromium's own walls need rights that root has given up.
    arguments = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    path = chromium()
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=path, args=arguments)
        try:
            yield opened
        finally:
            opened.close()


class Watched:
    """A page, and all that it asked for or complained of."""

    def __init__(
        self, opened: Browser, *, width: int = 1440, scheme: Any = "light", **more: Any
    ) -> None:
        context = opened.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **more
        )
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def close(self) -> None:
        """Close it, with all that belongs to it."""
        self.page.context.close()


def serious_findings(page: Page) -> list[str]:
    """What axe-core finds serious or worse, with the places; skipped where it is not there."""
    if not AXE.exists():
        pytest.skip("axe-core is not there: `make browser` brings it; nothing was looked at")
    page.add_script_tag(content=AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{v['id']} ({v['impact']}): {json.dumps([n['target'] for n in v['nodes']][:5])}"
        for v in found["violations"]
        if v["impact"] in SERIOUS
    ]
