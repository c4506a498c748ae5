"""Settings, commands and engine options in the code -> the tables of job.md, cli.md and engines.md.

Run: `python docs/generate.py` writes them, `python docs/generate.py --check` only says which are not current.
Promises: what stands between `<!-- generated: NAME -->` and `<!-- end -->` is replaced, all else stays.
Knows nothing of: the prose around the tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import click
from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rowmill.cli import main as rowmill
from rowmill.config import Job
from rowmill.engines.echo_script import EchoOptions, Fault
from rowmill.engines.http_options import HttpOptions
from rowmill.engines.llamacpp import LlamaOptions
from rowmill.engines.onnx import OnnxOptions
from rowmill.engines.sglang_options import SglangOptions
from rowmill.engines.transformers import TransformersOptions
from rowmill.engines.vllm_options import VllmOptions
from rowmill.part import Part, meaning_of
from rowmill.testing import PROMISES

FOLDER = Path(__file__).resolve().parent
REGION = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
HELP_COLUMNS = 88
WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    tuple: "list of texts",
    dict: "table",
}
BOUNDS: dict[type, tuple[str, str]] = {
    Gt: ("gt", "above"),
    Ge: ("ge", "from"),
    Lt: ("lt", "below"),
    Le: ("le", "up to"),
    MinLen: ("min_length", "of a length from"),
}


def setting_rows(model: type[BaseModel]) -> Iterator[str]:
    """A table of one model's own settings; tables inside it have a table of their own."""
    yield "| setting | value | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        if table_of(field) is not None or _is_inner(field):
            continue
        meaning = meaning_of(model, name).replace("|", "\\|").replace("\n", " ")
        key = field.alias or name
        yield f"| `{key}` | {_value(field)} | {_default(field)} | {meaning} |"


def _is_inner(field: FieldInfo) -> bool:
    """Whether it is filled in by rowmill itself."""
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("is_inner"))


def table_of(field: FieldInfo) -> type[Part] | None:
    """The model of a field that is a table of the job file; None where it is a setting."""
    found = field.annotation
    return found if isinstance(found, type) and issubclass(found, Part) else None


def _value(field: FieldInfo) -> str:
    bounds = [
        f"{words} {getattr(bound, name):,}"
        for bound in field.metadata
        for kind, (name, words) in BOUNDS.items()
        if isinstance(bound, kind)
    ]
    return " ".join([_type(field.annotation), *bounds])


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not NoneType]
        return " or ".join(map(_type, parts))
    if Fault in get_args(annotation):
        return "list of tables"
    return WORDS[get_origin(annotation) or annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"{value:,}"
    return f"`'{value}'`" if '"' in str(value) else f'`"{value}"`'


def job() -> Iterator[str]:
    """Every setting of the job file, table by table."""
    yield "## The top of the file"
    yield ""
    yield from setting_rows(Job)
    for name, field in Job.model_fields.items():
        table = table_of(field)
        if table is None:
            continue
        yield ""
        yield f"## `[{field.alias or name}]`"
        yield ""
        yield meaning_of(Job, name)
        yield ""
        yield from setting_rows(table)


def cli() -> Iterator[str]:
    """What `--help` says, command by command."""
    context = _context(rowmill, "rowmill", None)
    yield from _help(rowmill, context)
    yield from _commands(rowmill, context)


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        inner = _context(command, name, context)
        yield ""
        yield f"## `{inner.command_path}`"
        yield ""
        yield from _help(command, inner)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=HELP_COLUMNS,
        max_content_width=HELP_COLUMNS,
        **command.context_settings,
    )


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    yield "```text"
    yield command.get_help(context)
    yield "```"


def promises() -> Iterator[str]:
    """What `rowmill.testing` looks at."""
    yield "| promise | what is so where it is kept |"
    yield "|---|---|"
    for name, words in PROMISES.items():
        yield f"| `{name}` | {words} |"


REGIONS: dict[str, Callable[[], Iterator[str]]] = {
    "job": job,
    "cli": cli,
    "echo": lambda: setting_rows(EchoOptions),
    "faults": lambda: setting_rows(Fault),
    "http": lambda: setting_rows(HttpOptions),
    "llamacpp": lambda: setting_rows(LlamaOptions),
    "onnx": lambda: setting_rows(OnnxOptions),
    "promises": promises,
    "sglang": lambda: setting_rows(SglangOptions),
    "transformers": lambda: setting_rows(TransformersOptions),
    "vllm": lambda: setting_rows(VllmOptions),
}


def filled(text: str) -> str:
    """The page with its generated parts made anew."""
    return REGION.sub(
        lambda found: "\n".join([found[1], *REGIONS[found[2]](), "", found[3]]), text
    )


def pages() -> Iterator[tuple[Path, str, str]]:
    """(path, text as it is, text as it should be) of each page."""
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text("utf-8")
        yield path, text, filled(text)


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` name those that are not current."""
    stale = [(path, new) for path, old, new in pages() if old != new]
    if "--check" in arguments:
        for path, _ in stale:
            sys.stderr.write(f"{path.name} is not current; run `python docs/generate.py`\n")
        return 1 if stale else 0
    for path, new in stale:
        path.write_text(new, "utf-8")
        sys.stdout.write(f"{path.name} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
