"""The site of the docs: it is built without a warning, its links lead somewhere, it fetches nothing."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a built page fetches, links to, and can be linked to at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if told.get("id"):
            self.anchors.add(str(told["id"]))
        if tag in FETCHED and told.get(FETCHED[tag]):
            self.fetched.append(str(told[FETCHED[tag]]))
        if tag == "a" and told.get("href"):
            self.links.append(str(told["href"]))


def build(checkout: Path, python: str, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "mkdocs", "build", "--strict", "-d", str(target)],
        cwd=checkout,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """The built site."""
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, python, target)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return target


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, Page]:
    """The pages of the site by name."""
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_page_of_the_docs_is_built(built: dict[str, Page]) -> None:
    pages = [path.stem for path in (ROOT / "docs").glob("*.md")]
    decisions = [f"design/{path.stem}" for path in (ROOT / "design").glob("*.md")]

    wanted = {f"{name}.html" for name in (*pages, *decisions, "ARCHITECTURE")}
    assert wanted - set(built) == set()
    assert wanted - {"index.html", *built["index.html"].links} == set()


@pytest.mark.slow
def test_pages_fetch_nothing_from_outside(site: Path, built: dict[str, Page]) -> None:
    fetched = {url for page in built.values() for url in page.fetched}
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))

    assert fetched
    assert [url for url in fetched if url.startswith(("http:", "https:", "//"))] == []
    assert "url(http" not in styles.replace('"', "").replace("'", "")
    assert "@import" not in styles


@pytest.mark.slow
def test_links_of_built_pages_lead_to_pages_and_places(
    site: Path, built: dict[str, Page]
) -> None:
    broken = []
    for name, page in built.items():
        for link in page.links:
            path, _, anchor = unquote(link).partition("#")
            # The page for what is not there may be shown at any depth: its links begin at the root.
            home = Path(name).parent if name != "404.html" else Path()
            target = os.path.normpath(home / path.lstrip("/")) if path else name
            target = "index.html" if target == "." else target
            there = built.get(target)
            is_there = (site / target).is_file()
            if not is_there or (there and anchor and anchor not in there.anchors):
                broken.append((name, link))

    assert broken == []


@pytest.mark.slow
def test_search_finds_prose_and_no_source(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    places = {entry["location"] for entry in index["docs"]}

    assert {"recipes.html", "design/001-disk-layout.html"} <= places
    assert [place for place in places if place.startswith("source/")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["[x](nowhere.md)", "[x](rules.md#nowhere)", "[x](../src/rowmill/nowhere.py)"]
)
def test_a_broken_link_ends_the_build(line: str, tmp_path: Path, python: str) -> None:
    for name in ("docs", "design", "src", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mkdocs.yml", "ARCHITECTURE.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "docs/index.md").open("a") as page:
        page.write(f"\n{line}\n")

    done = build(tmp_path, python, tmp_path / "site")

    assert done.returncode != 0
    assert "index.md" in done.stderr


@pytest.fixture(scope="module")
def hook() -> dict[str, Callable[..., Any]]:
    return runpy.run_path(str(ROOT / "docs/pages.py"))


@pytest.mark.parametrize(
    ("uri", "link", "wanted"),
    [
        ("rules.md", "job.md#a", "job.md#a"),
        ("rules.md", "../design/001-disk-layout.md", "design/001-disk-layout.md"),
        ("rules.md", "../src/rowmill/feed.py", "source/src/rowmill/feed.py.md"),
        ("ARCHITECTURE.md", "src/rowmill/feed.py", "source/src/rowmill/feed.py.md"),
        ("design/003-source-lines-carried-byte-for-byte.md", "../docs/job.md", "../job.md"),
        ("rules.md", "#a", "#a"),
        ("rules.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_a_link_of_the_repository_becomes_one_of_the_site(
    uri: str, link: str, wanted: str, hook: dict[str, Callable[..., Any]]
) -> None:
    assert hook["relinked"](f"see [it]({link}).", uri) == f"see [it]({wanted})."


def test_fences_are_left_alone_but_for_what_they_need(
    hook: dict[str, Callable[..., Any]],
) -> None:
    class At:
        src_uri = "rules.md"

    class Here:
        file = At

    text = "[x](../ARCHITECTURE.md)\n```sh model\n[x](../ARCHITECTURE.md)\n```\n"

    made = hook["on_page_markdown"](text, Here)

    assert made == "[x](ARCHITECTURE.md)\n```sh\n[x](../ARCHITECTURE.md)\n```\n"


def test_a_file_with_fences_in_it_is_shown_whole(
    hook: dict[str, Callable[..., Any]],
) -> None:
    name = "tests/test_site.py"

    shown = hook["shown_file"](name)

    assert (ROOT / name).read_text("utf-8").rstrip("\n") in shown
    assert shown.rstrip().endswith("````")
