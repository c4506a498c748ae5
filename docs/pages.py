"""Markdown as it stands in the repository -> pages of the site. A hook of MkDocs, named in mkdocs.yml.

Promises: a page outside docs/ keeps its place (`design/001-disk-layout.md`); another file that a page links to
becomes a page that shows it; links mean what they mean in the repository; nothing is written into docs/.
Knows nothing of: how pages look.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS, SOURCE = "docs/", "source/"
BESIDE = ("ARCHITECTURE.md", "design/*.md")
"""Pages of the site that do not lie in docs/."""
LATER_FOUND = "---\nsearch:\n  boost: 0.5\n---\n"
"""Who searches wants to use rowmill, mostly."""
FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*?$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".jsonl": "json", ".sh": "sh", ".jinja": "jinja"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of design/ to the navigation, so that a new one needs no line there."""
    assert config.nav is not None
    (design,) = (part["Design"] for part in config.nav if "Design" in part)
    design += [name for name in beside() if name not in design]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and what pages link to."""
    for name in beside():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, name, content=f"{LATER_FOUND}{text}"))
    shown = {
        target
        for file in files.documentation_pages()
        for target in targets(home_of(file.src_uri), file.content_string)
        if uri_of(target).startswith(SOURCE) and (ROOT / target).is_file()
    }
    for target in sorted(shown):
        page = File.generated(
            config,
            uri_of(target),
            content=shown_file(target),
            inclusion=InclusionLevel.NOT_IN_NAV,
        )
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links of the repository into links of the site; a fence keeps its language alone."""
    uri = page.file.src_uri
    return NEEDS.sub(r"\1", outside_fences(markdown, lambda text: relinked(text, uri)))


def beside() -> list[str]:
    """Names of the pages outside docs/."""
    return [
        path.relative_to(ROOT).as_posix()
        for pattern in BESIDE
        for path in sorted(ROOT.glob(pattern))
    ]


def home_of(uri: str) -> str:
    """Where a page of the site lies in the repository."""
    return uri if uri in beside() else f"{DOCS}{uri}"


def uri_of(name: str) -> str:
    """Where a file of the repository lies in the site."""
    if name.startswith(DOCS):
        return name.removeprefix(DOCS)
    return name if name in beside() else f"{SOURCE}{name}.md"


def targets(home: str, markdown: str) -> Iterator[str]:
    """Files of the repository that a page links to."""
    for link in LINK.findall(FENCE.sub("", markdown)):
        if not is_outward(link):
            yield resolved(home, link.partition("#")[0])


def relinked(markdown: str, uri: str) -> str:
    """Text between fences with its links as the site needs them."""
    home = home_of(uri)

    def link_of(found: re.Match[str]) -> str:
        name, hash_sign, anchor = found[1].partition("#")
        if is_outward(found[1]):
            return found[0]
        target = posixpath.relpath(uri_of(resolved(home, name)), posixpath.dirname(uri) or ".")
        return f"]({target}{hash_sign}{anchor})"

    return LINK.sub(link_of, markdown)


def is_outward(link: str) -> bool:
    """Whether a link leaves the repository, or stays on its page."""
    return "://" in link or link.startswith(("#", "mailto:"))


def resolved(home: str, link: str) -> str:
    """A link of the page `home` as a name in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), link))


def outside_fences(markdown: str, change: Any) -> str:
    """The text with all that stands outside fenced blocks changed."""
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(markdown[at:])])


def shown_file(name: str) -> str:
    """A page that shows a file; searching is for the prose."""
    text = (ROOT / name).read_text("utf-8").rstrip("\n")
    language = LANGUAGES.get(Path(name).suffix, "text")
    ticks = "`" * (3 + max(map(len, re.findall("`+", text)), default=0))
    front = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n"
    return f"{front}# {Path(name).name}\n\n`{name}`\n\n{ticks}{language}\n{text}\n{ticks}\n"
