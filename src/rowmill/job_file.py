"""TOML file + flags -> Job: defaults < file < flags and `--set`.

Promises: every mistake of a file and its flags is named at once, in one sentence each: which key,
what was found, what is expected. No value of a text setting is shown; prompts may be private.
Relative paths in a job file are relative to the current directory, as on the command line.
Knows nothing of: engines (their own options are checked by a function that the caller brings).
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rowmill.config import INNER_TABLES, EngineConfig, Job
from rowmill.errors import BadJob, ConfigError

CheckOptions = Callable[[EngineConfig], Sequence[str]]
Tree = dict[str, Any]
Keys = tuple[str | int, ...]

MAX_SHOWN = 40
"""Characters of a name or number that a message shows."""
MAX_ROUNDS = 4
"""Validation rounds; rules over several keys speak only once the keys alone are right."""
TOLD_TO_ENGINES = frozenset(("kind", "embed", "classify", "score", *INNER_TABLES))
"""What a job says and its engine looks at, too."""
SHORT: dict[tuple[str, ...], str] = {("output",): "path", ("sink",): "to"}
NEEDED = {
    "source": "no input: name a file, glob or folder, or set `source` in a job file",
    "output": "no output: give `-o FOLDER`, or set `output` in a job file",
}


def load_job(
    file: str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    needs: Sequence[str] = (),
    check_options: CheckOptions | None = None,
) -> Job:
    """Read a job file, lay settings over it and check the whole.

    Args:
        file: the TOML file; None where flags alone make the job.
        settings: value by dotted key, such as `{"run.limit": 10}`; later than the file.
        sets: `key.path=value` texts, later than `settings`; a value is TOML, else text.
        needs: keys of `NEEDED` that this job cannot do without.
        check_options: names the mistakes in an engine's own options.

    Raises:
        BadJob: with every mistake found.
    """
    where = str(file) if file is not None else "command line"
    mistakes: list[str] = []
    tree = _read_toml(Path(file), where) if file is not None else {}
    _spell_out(tree)
    given: dict[tuple[str, ...], str] = {}
    for key, value in (settings or {}).items():
        path = tuple(key.split("."))
        given[path] = "a flag"
        mistakes += _lay(tree, path, value)
    for text in sets:
        mistakes += _lay_text(tree, text, given)
    job, found = _validated(tree, given if file is not None else {}, check_options)
    mistakes += found
    if job is not None:
        mistakes += [NEEDED[key] for key in needs if not _has(job, key)]
    if mistakes or job is None:
        raise BadJob(where=where, mistakes=mistakes)
    return job


def _has(job: Job, key: str) -> bool:
    return bool(job.source) if key == "source" else bool(job.output.path)


def _read_toml(file: Path, where: str) -> Tree:
    """The tables of a TOML file, a byte order mark in front allowed."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
        return tomllib.loads(text)
    except OSError as error:
        mistake = _why_unreadable(error)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        mistake = f"line {line} is not UTF-8; save the file as UTF-8"
    except tomllib.TOMLDecodeError as error:
        mistake = _why_not_toml(str(error))
    except (ValueError, RecursionError):
        mistake = "not valid TOML: a number has too many digits, or lists are nested too deeply"
    raise BadJob(where=where, mistakes=[mistake])


def _why_unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such job file; check the name, or give the input file itself"
    if isinstance(error, IsADirectoryError):
        return "a folder, not a job file; an argument that ends in `.toml` is read as one"
    return f"the job file cannot be read: {error.strerror or type(error).__name__}"


def _why_not_toml(text: str) -> str:
    match = re.fullmatch(r"(.*) \(at (.*)\)", text, re.DOTALL)
    what, place = match.groups() if match else (text, "an unknown place")
    hint = "; text stands in quotes" if what == "Invalid value" else ""
    return f"not valid TOML at {place}: {what}{hint}"


def _spell_out(tree: Tree) -> None:
    """A text is short for one setting of its table (`SHORT`); long, flags can be laid over it key by key."""
    short = (
        (table, key) for (table,), key in SHORT.items() if isinstance(tree.get(table), str)
    )
    tree.update({table: {key: tree[table]} for table, key in short})


def _lay(tree: Tree, path: tuple[str, ...], value: Any) -> list[str]:
    """Put `value` at `path`, over what is there; mistakes if the way is barred."""
    if path in SHORT and isinstance(value, str):
        path = (*path, SHORT[path])
    at = tree
    for depth, key in enumerate(path[:-1], start=1):
        step = at.setdefault(key, {})
        if not isinstance(step, dict):
            return [
                f"`{_dotted(path)}`: `{_dotted(path[:depth])}` is {_found(step)}, not a table"
            ]
        at = step
    at[path[-1]] = value
    return []


def _lay_text(tree: Tree, text: str, given: dict[tuple[str, ...], str]) -> list[str]:
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        shown = _short(key) if equals else "an argument without `=`"
        return [
            f"`--set` takes `key.path=value`, such as `sampling.max_tokens=64`; got {shown}"
        ]
    given[path] = "`--set`"
    try:
        return _lay(tree, path, _value(path, value))
    except ValueError:
        return [
            f"`--set {_dotted(path)}`: the value begins like TOML and is not; mend its quotes or brackets"
        ]


def _value(path: tuple[str, ...], text: str) -> Any:
    """The value of a `--set`: TOML, else text; for text settings text unless it is quoted.

    Raises:
        ValueError: it begins like TOML text, a list or a table, and is none.
    """
    text = text.strip()
    kind = _kind(_field(path))
    wants_text = kind is str or get_origin(kind) is Literal or path in SHORT
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        if text[:1] in ("[", "{", '"', "'") and not wants_text:
            raise
        return text
    value = table["value"] if table.keys() == {"value"} else text
    if isinstance(value, date | time):
        return text
    takes_text = wants_text or get_origin(kind) is tuple
    return text if takes_text and not isinstance(value, str | list | dict) else value


def _validated(
    tree: Tree, given: Mapping[tuple[str, ...], str], check_options: CheckOptions | None
) -> tuple[Job | None, list[str]]:
    """The job, or None, and every mistake in `tree`.

    What is wrong is taken out and the rest validated again, so that no mistake hides another.
    """
    job, mistakes, gone = None, list[str](), set[str]()
    for path, mistake in [*_odd_values(tree), *_odd_places(tree), *_odd_spellings(tree)]:
        mistakes.append(mistake + _origin(path, given))
        _drop(tree, path)
        gone.add(str(path[0]))
    for _ in range(MAX_ROUNDS):
        try:
            job = Job.model_validate(_with_tuples(tree, Job), strict=True)
            break
        except ValidationError as error:
            for item in error.errors(include_url=False, include_context=True):
                mistakes.append(_sentence(item) + _origin(item["loc"], given))
                _drop(tree, item["loc"])
                gone |= {str(part) for part in item["loc"][:1]}
    if check_options is not None:
        try:
            own = EngineConfig.model_validate(tree.get("engine", {}))
            # What else is wrong with the job does not keep its engine's mistakes from being told. Of a table that was
            # taken out the engine would say that it is missing.
            is_whole = job is not None and gone.isdisjoint(TOLD_TO_ENGINES)
            mistakes += check_options(job.engine if job is not None and is_whole else own)
        except ConfigError as error:
            mistakes.append(str(error))
    return job, list(dict.fromkeys(mistakes))


def _odd_values(node: Any, path: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Values that TOML has and no setting takes."""
    if isinstance(node, dict | list):
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            yield from _odd_values(value, (*path, key))
    elif isinstance(node, date | time):
        yield (
            path,
            f"`{_dotted(path)}` is a date or time; no setting takes one, write text in quotes",
        )
    elif isinstance(node, float) and not math.isfinite(node):
        yield path, f"`{_dotted(path)}` is `{node}`; expected a finite number"


def _odd_places(tree: Tree) -> Iterator[tuple[Keys, str]]:
    """Sources and outputs that the job would take, spelt otherwise than meant."""
    source, output = tree.get("source", ""), tree.get("output", {})
    items = source if isinstance(source, list) else [source]
    odd = next((item for item in items if not isinstance(item, str)), None)
    if odd is not None:
        yield (
            ("source",),
            f"`source` holds {_found(odd)}; expected a string or a list of strings",
        )
    elif isinstance(source, list) and "" in items:
        yield ("source",), "`source` holds an empty string; name a file, glob or folder"
    if not isinstance(output, dict):
        yield ("output",), f"`output` is {_found(output)}; expected a string or a table"
    elif output.get("path") == "-":
        yield ("output", "path"), "`-` is no output; results go to a folder, `-o FOLDER`"


def _odd_spellings(tree: Tree) -> Iterator[tuple[Keys, str]]:
    """Attribute names in place of keys: the model would take them as a second spelling."""
    for name, field in Job.model_fields.items():
        if field.alias and field.alias != name and name in tree:
            yield (name,), _unknown((name,), tree[name])


def _with_tuples(tree: Tree, model: type[BaseModel]) -> Tree:
    """TOML's lists as the tuples that strict validation asks for."""
    fields = _fields(model)
    changed = dict(tree)
    for key, value in tree.items():
        kind = _kind(fields.get(key))
        if isinstance(value, list) and get_origin(kind) is tuple:
            changed[key] = tuple(value)
        elif isinstance(value, dict) and _is_table(kind):
            changed[key] = _with_tuples(value, kind)
    return changed


def _drop(tree: Any, path: Keys) -> None:
    """Take the value at `path` out; the whole list where it is an item of one."""
    keys = [key for key in path if isinstance(key, str)]
    for key in keys[:-1]:
        tree = tree.get(key) if isinstance(tree, dict) else None
    if keys and isinstance(tree, dict):
        tree.pop(keys[-1], None)


def _origin(path: Keys, given: Mapping[tuple[str, ...], str]) -> str:
    by = next((label for key, label in given.items() if path[: len(key)] == key), "")
    return f" (given by {by})" if by else ""


def _sentence(item: Any) -> str:
    """One of pydantic's findings in our words."""
    path: Keys = item["loc"]
    if item["type"] == "extra_forbidden":
        return _unknown(path, item["input"])
    if item["type"] == "value_error":
        prefix = f"`[{_dotted(path)}]`: " if path else ""
        return f"{prefix}{item['ctx']['error']}"
    names = tuple(key for key in path if isinstance(key, str))
    field = _field(names)
    expected = _expected(field) if field is not None else "something else"
    if isinstance(path[-1], int):
        return f"item {path[-1] + 1} of `{_dotted(names)}` is {_found(item['input'])}; expected a string"
    is_name = get_origin(_kind(field)) is Literal
    return f"`{_dotted(path)}` is {_found(item['input'], is_name=is_name)}; expected {expected}"


def _unknown(path: Keys, value: Any) -> str:
    """An unknown key, the nearest valid one, and all that its table takes."""
    *parents, name = (str(key) for key in path)
    table = _table(tuple(parents)) or Job
    known = sorted(_fields(table))
    elsewhere = [f"{t}.{name}" for t in sorted(_fields(Job)) if name in _fields(_table((t,)))]
    near = elsewhere or [
        _dotted((*parents, key)) for key in difflib.get_close_matches(name, known, n=1)
    ]
    hint = f"; did you mean `{near[0]}`?" if near else ";"
    what = "table" if isinstance(value, dict) else "key"
    owner = f"`[{_dotted(tuple(parents))}]`" if parents else "a job"
    takes = ", ".join(f"`{key}`" for key in known)
    return f"unknown {what} `{_dotted(path)}`{hint} {owner} takes {takes}"


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """Field by key, as the job file spells it."""
    fields = model.model_fields if model is not None else {}
    return {field.alias or name: field for name, field in fields.items()}


def _field(path: tuple[str, ...]) -> FieldInfo | None:
    return _fields(_table(path[:-1])).get(path[-1]) if path else None


def _table(path: tuple[str, ...]) -> type[BaseModel] | None:
    """The model behind a table's path; None where there is none."""
    model: type[BaseModel] | None = Job
    for key in path:
        kind = _kind(_fields(model).get(key))
        model = kind if _is_table(kind) else None
    return model


def _kind(field: FieldInfo | None) -> Any:
    """A field's type without `None`; None for no field."""
    kind: Any = field.annotation if field is not None else None
    if get_origin(kind) in (Union, UnionType):
        kind = next(k for k in get_args(kind) if k is not type(None))
    return kind


def _word(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{name}`" for name in get_args(kind))
    if get_origin(kind) is tuple:
        return "a string or a list of strings"
    if _is_table(kind):
        return "a table with " + ", ".join(f"`{key}`" for key in sorted(_fields(kind)))
    words = {bool: "`true` or `false`", int: "a whole number", float: "a number"}
    return "a string" if kind is str else words.get(kind, "a table")


def _expected(field: FieldInfo) -> str:
    """What a field takes, bounds told."""
    bounds = []
    for rule in field.metadata:
        for name, word in (
            ("gt", "above"),
            ("ge", "at least"),
            ("lt", "under"),
            ("le", "at most"),
        ):
            if hasattr(rule, name):
                bounds.append(f"{word} {getattr(rule, name):,}")
        if getattr(rule, "min_length", 0):
            bounds.append("that is not empty")
        most = getattr(rule, "max_length", None)
        if most:
            bounds.append(f"of at most {most} character{'s' * (most > 1)}")
        if getattr(rule, "pattern", None):
            bounds.append(f"that matches `{rule.pattern}`")
    word = _word(_kind(field))
    return f"{word} {' and '.join(bounds)}" if bounds else word


def _found(value: Any, *, is_name: bool = False) -> str:
    """A value in words; text is shown only where it is a name, as prompts may be private."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{_short(str(value))}`"
    if isinstance(value, str):
        return f"`{_short(value)}`" if is_name else "a string" if value else "an empty string"
    kinds: dict[Any, str] = {dict: "a table", list: "a list", tuple: "a list"}
    return kinds.get(type(value), "nothing" if value is None else type(value).__name__)


def _dotted(path: Keys) -> str:
    return ".".join(_short(str(key)) for key in path)


def _short(text: str) -> str:
    """`text` on one line, cut where it is long."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}..."
