"""What readers see first holds: blocks run, links lead somewhere, generated tables are current.

A block's language says what is done with it. `sh` and `python` are run, in a folder with the examples, block after
block of a section; `toml` is a job, and lies there as `job.toml`; `json` is parsed. A second word on `sh` names what
the block needs: `demo` (the demo model), `endpoint` (a fake one is there), `store` (an S3 server is there, with the
reviews in `my-bucket`), `install` and `model` (not run).
`text` is for reading; in docs/, behind a block that is run, it is the end of what that one writes, `...` being
anything within a line, or any lines.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rowmill import errors, rundir
from rowmill.config import EngineConfig, Job
from rowmill.engines import check_options
from rowmill.job_file import load_job
from rowmill.rows import Outcome
from rowmill.write.answer_form import OWN_FIELDS
from tests.cases.endpoint import Endpoint
from tests.servers.s3_server import S3Server

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "design/*.md", "changelog.d/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
FENCE = re.compile(r"^```(\S*) ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NEEDS = {"install", "model", "endpoint", "demo", "store", "kubernetes"}
NOT_RUN = {"install", "model"}
SLOW = {
    "README.md Resume",
    "docs/engines.md `http`",
    "docs/recipes.md Ask failed rows again",
    "docs/recipes.md Go on after a kill",
    "docs/recipes.md Ask an OpenAI-compatible endpoint",
    "docs/recipes.md Take out what is there",
    "docs/recipes.md Run two workers on one output",
}
STORIES = {"docs/journey.md"}
"""Pages whose sections go on from one another."""
URL = "http://127.0.0.1:8000/v1"
VERDICT = re.compile(r"^(?: *(?:slow|fine): |(?:slow|fine) {4}).*\n", re.MULTILINE)
"""The endpoint of the pages; the fake one listens where there is room."""
LANGUAGES = {"sh", "python", "toml", "json", "text"}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    needs: str
    text: str


def blocks(page: str) -> list[Block]:
    return blocks_in((ROOT / page).read_text("utf-8"))


def blocks_in(text: str) -> list[Block]:
    return [Block(*parts) for parts in FENCE.findall(text)]


def runnable() -> Iterator[Any]:
    """(page, its blocks) of every section with some that can be run; a story is one section."""
    for page in NAMES:
        text = (ROOT / page).read_text("utf-8")
        is_story = page in STORIES
        for section in [text] if is_story else re.split(r"^## ", text, flags=re.MULTILINE):
            found = blocks_in(section)
            todo = [b for b in found if is_run(b)]
            name = page if is_story else f"{page} {section.splitlines()[0]}"
            is_slow = name in SLOW or {"demo", "store"} & {b.needs for b in todo}
            if todo:
                yield pytest.param(
                    page, found, id=name, marks=[pytest.mark.slow] if is_slow else []
                )


def is_run(block: Block) -> bool:
    return block.language in ("sh", "python") and block.needs not in NOT_RUN


def with_shown(page: str, found: list[Block]) -> Iterator[tuple[Block, str | None]]:
    """Each block, and what it is said to write."""
    for block, after in pairwise([*found, Block("", "", "")]):
        is_told = page.startswith("docs/") and is_run(block) and after.language == "text"
        yield block, after.text if is_told else None


def pattern_of(shown: str) -> re.Pattern[str]:
    """What is written, up to its end."""
    parts = [
        r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, f"{line}\n".split("...")))
        for line in shown.splitlines()
    ]
    return re.compile(rf"^{''.join(parts)}\Z", re.MULTILINE)


def of_language(language: str) -> Iterator[Block]:
    pages = NAMES
    return (block for name in pages for block in blocks(name) if block.language == language)


def slug(heading: str) -> str:
    """The anchor of a heading, as it is made where these pages are looked at."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def generator() -> dict[str, object]:
    return runpy.run_path(str(ROOT / "docs/generate.py"))


@pytest.fixture
def reader(tmp_path: Path, python: str) -> dict[str, str]:
    """The environment of somebody who has the examples and `rowmill` on the path, and no model."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "bin").mkdir()
    for name, words in (("rowmill", "-m rowmill"), ("python", "")):
        command = tmp_path / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{python}" {words} "$@"\n', "utf-8")
        command.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHON": python}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A fake endpoint."""
    with closing(Endpoint(tmp_path / "endpoint")) as endpoint:
        yield endpoint.url


def reviews_in_a_bucket(server: S3Server) -> dict[str, str]:
    """Put them there; the environment that reaches them."""
    content = (ROOT / "examples/reviews.jsonl").read_bytes()
    server.store("my-bucket").put("reviews/reviews.jsonl", content)
    return server.environment


def run_block(
    block: Block, folder: Path, environment: dict[str, str], url: str
) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-euo", "pipefail", "-c"]
    command = [*shell, block.text.replace(URL, url)]
    return subprocess.run(
        command if block.language == "sh" else ["python", "-c", block.text],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(("page", "found"), list(runnable()))
def test_blocks_of_a_section_run_one_after_the_other(
    page: str,
    found: list[Block],
    tmp_path: Path,
    reader: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    for block, shown in with_shown(page, found):
        if block.language == "toml":
            (tmp_path / "job.toml").write_text(block.text, "utf-8")
        if not is_run(block):
            continue
        url = request.getfixturevalue("url") if block.needs == "endpoint" else URL
        if block.needs == "store":
            reader |= reviews_in_a_bucket(request.getfixturevalue("s3_server"))
        done = run_block(block, tmp_path, reader, url)
        # What a run waited for is said of one that took seconds: on a busy machine alone.
        written = VERDICT.sub("", done.stdout.replace(url, URL))
        assert done.returncode == 0, block.text + written
        if shown is not None:
            assert pattern_of(shown).search(written), f"{shown}\nis not the end of\n{written}"


def test_pages_show_what_their_blocks_write() -> None:
    shown = [
        page for page in NAMES for _, text in with_shown(page, blocks(page)) if text is not None
    ]

    assert {"docs/rules.md", "docs/recipes.md"} <= set(shown)
    assert shown.count("docs/recipes.md") >= 12


@pytest.mark.parametrize(
    ("written", "is_shown"),
    [
        ("before\nrows 12 of 20\nend\n", True),
        ("rows 1 of 20\nmany\nlines\nend\n", True),
        ("rows 1 of 20\nend\nmore\n", False),
        ("rows 1 of 21\nend\n", False),
        ("some rows 1 of 20\nend\n", False),
        ("rows 1\n of 20\nend\n", False),
        ("", False),
    ],
)
def test_what_is_shown_is_the_end_of_what_is_written(written: str, is_shown: bool) -> None:
    assert bool(pattern_of("rows ... of 20\n...\nend\n").search(written)) == is_shown


@pytest.mark.parametrize("page", NAMES)
def test_every_block_says_what_it_is(page: str) -> None:
    told = {(b.language, b.needs) for b in blocks(page)}

    assert {language for language, _ in told} <= LANGUAGES
    assert {needs for _, needs in told} <= NEEDS | {""}


def test_toml_blocks_are_jobs(tmp_path: Path) -> None:
    found = list(of_language("toml"))
    assert found

    for block in (block for block in found if block.needs != "kubernetes"):
        file = tmp_path / "job.toml"
        file.write_text(block.text, "utf-8")
        job = load_job(file, needs=("source", "output"), check_options=check_options)
        assert (ROOT / job.source[0]).is_file(), block.text


def test_json_blocks_are_lines_of_json() -> None:
    found = list(of_language("json"))
    assert found

    for block in found:
        rows = [json.loads(line) for line in block.text.splitlines()]
        assert all(isinstance(row, dict) for row in rows)


def test_the_result_line_that_is_shown_has_the_columns_of_an_outcome() -> None:
    (block,) = [b for b in blocks("README.md") if b.language == "json"]
    columns = [name for name in json.loads(block.text) if name.startswith("rowmill_")]

    others = {"key", *OWN_FIELDS}
    fields = [name for name in Outcome.__struct_fields__ if name not in others]
    assert ["rowmill_row", *(f"rowmill_{name}" for name in fields)] == columns


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for link in LINK.findall(FENCE.sub("", text)):
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert "://" not in link, f"{page}: {link} leads out of the project"
        assert target.exists(), f"{page}: {link}"
        if anchor:
            headings = HEADING.findall(target.read_text("utf-8"))
            assert anchor in map(slug, headings), f"{page}: {link}"


@pytest.mark.parametrize("page", NAMES)
def test_markdown_means_the_same_to_every_reader_of_it(page: str) -> None:
    """Some want an empty line before a list, and all take `__init__` outside code for bold."""
    text = FENCE.sub("", (ROOT / page).read_text("utf-8"))
    item = re.compile(r"(-|\d+\.) ")
    lists = [
        line
        for before, line in pairwise(text.splitlines())
        if item.match(line) and before and not item.match(before) and before[0] != " "
    ]
    prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)

    assert lists == []
    assert re.findall(r"\S*__\S*", prose) == []


def test_readme_is_short_and_shows_code_at_once() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 200

    first = "\n".join(lines[:20])
    languages = [language for language, needs, _ in FENCE.findall(first) if not needs]
    assert {"sh", "python"} <= set(languages)


def test_readme_tells_the_journey_in_eight_linked_lines() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    journey = text.partition("## The journey of a row")[2].partition("\n## ")[0]
    steps = re.findall(r"^(\d)\. \[\w+\]\((src/rowmill/\S+\.py)\)", journey, re.MULTILINE)

    assert [number for number, _ in steps] == list("12345678")


def test_make_verbs_in_the_readme_exist() -> None:
    verbs = set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text("utf-8")))
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert {"demo", "test"} <= verbs
    assert all(re.search(rf"^{verb}:.*## ", makefile, re.MULTILINE) for verb in verbs)


def test_extras_in_the_readme_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = set(re.findall(r"pip install '\.\[(\w+)\]'", (ROOT / "README.md").read_text()))

    assert named == set(project["optional-dependencies"]) - {"dev", "docs"}


def test_generated_references_are_current(python: str) -> None:
    done = subprocess.run(
        [python, ROOT / "docs/generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_stale_reference_is_noticed() -> None:
    filled = generator()["filled"]
    assert callable(filled)
    page = "before\n<!-- generated: faults -->\nold\n<!-- end -->\nafter\n"

    new = filled(page)

    assert new.startswith("before\n<!-- generated: faults -->\n\n| setting |")
    assert new.endswith("\n\n<!-- end -->\nafter\n")
    assert "old" not in new
    assert filled(new) == new


def test_every_setting_and_option_is_in_the_references() -> None:
    job = (ROOT / "docs/job.md").read_text("utf-8")
    tables = [Job, *(f.annotation for f in Job.model_fields.values())]
    models = [t for t in tables if isinstance(t, type) and hasattr(t, "model_fields")]
    settings = {
        field.alias or name
        for model in models
        for name, field in model.model_fields.items()
        if field.annotation not in models and not field.json_schema_extra
    }

    assert EngineConfig in models
    assert settings
    assert [name for name in settings if f"| `{name}` |" not in job] == []


def test_every_error_is_in_the_error_page() -> None:
    text = (ROOT / "docs/errors.md").read_text("utf-8")
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.RowmillError)
    ]
    kinds = {value.kind for value in classes if issubclass(value, errors.RowError)}

    assert [c.__name__ for c in classes if not re.search(rf"\b{c.__name__}\b", text)] == []
    assert [kind for kind in kinds if f"| `{kind}` |" not in text] == []


def test_sentences_of_the_error_page_are_those_of_the_code() -> None:
    text = (ROOT / "docs/errors.md").read_text("utf-8")
    made = [
        errors.TooLong(prompt_tokens=9214, asked_tokens=0, limit_tokens=8192),
        errors.MissingExtra(what="`xllamacpp`", extra="llamacpp"),
        errors.UnknownName(what="engine", name="ech", known=["echo", "http", "llamacpp"]),
    ]

    assert [str(error) for error in made if str(error) not in text] == []


def test_architecture_names_the_layers_of_the_import_contract() -> None:
    contract = (ROOT / ".importlinter").read_text("utf-8")
    layers = contract.partition("layers =")[2].partition("\n\n")[0].split("\n")
    wanted = [layer.strip() for layer in layers if layer.strip()]
    hidden = {"__main__", "(testing)"}

    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    drawn = text.partition("## Layers")[2].partition("```text\n")[2].partition("```")[0]
    assert [layer for layer in wanted if layer not in hidden] == drawn.splitlines()


def test_architecture_names_every_folder_of_a_run() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    disk = text.partition("## The disk")[2]
    folders = ("plan/", *(getattr(rundir, name) for name in ("SEGMENTS", "COMMITS", "LEASES")))
    more = (rundir.EVENTS, rundir.ENGINES, rundir.RESULTS, rundir.RUN)

    assert [name for name in (*folders, *more) if f"\n{name}" not in disk] == []


@pytest.mark.parametrize("page", [name for name in NAMES if name.startswith("design/")])
def test_a_decision_tells_problem_choice_and_price_on_one_page(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")

    assert HEADING.findall(text)[1:] == ["The problem", "The choice", "What we gave up"]
    assert len(text.split()) <= 600


@pytest.mark.parametrize("page", NAMES)
def test_no_page_names_a_machine_or_a_registry(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")

    assert re.findall(r"pypi|/work/|/home/|/tmp/|github\.com", text, re.IGNORECASE) == []
