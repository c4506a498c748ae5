"""Row -> Request: all thinking about a job is done once, then each row is read by it.

Promises: a row gives one Request or raises one RowError; the rules hold for all rows alike:
with `prompt` or `prompt_jinja` a row is columns; without, it is a batch line where it has `url` and `body`
(and `method` or `custom_id`), else it has one of `messages`, `prompt`, `prompt_token_ids`.
Knows nothing of: files, tokenizers, engines beyond their Limits.
Memory: one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from rowmill.config import Job
from rowmill.errors import ConfigError, InvalidRow, RowError
from rowmill.rows import Limits, Request, Row
from rowmill.validate.asked import CHECKS, Samplings
from rowmill.validate.batch_lines import batch_request, is_batch_line
from rowmill.validate.columns import compile_columns, fill
from rowmill.validate.ids import canonical_id
from rowmill.validate.jinja_prompt import JinjaPrompt
from rowmill.validate.lines import Columns, names, shown, split_columns, value_of, what_is
from rowmill.validate.shapes import (
    Asked,
    Way,
    encode,
    ids_request,
    messages_request,
    prompt_request,
    row_tools,
    text_request,
    with_tools,
)

_ABSENT = Raw()
_READ_ERRORS = (msgspec.MsgspecError, RecursionError)
_tuple = msgspec.structs.astuple


class Recipe(msgspec.Struct, frozen=True):
    """How each row of one job is read."""

    request: Callable[[Row], Request]
    """The row's request; raises RowError."""
    id_of: Callable[[Row], bytes]
    """JSON text of the row's id alone; empty where it has none, or none that can be read."""


def compile_recipe(job: Job, *, limits: Limits, chat_template: bool) -> Recipe:
    """Decide once how rows of this job are read.

    Args:
        job: What is asked.
        limits: What the engine takes and honours.
        chat_template: The model has one, or the endpoint renders by itself.

    Raises:
        ConfigError: settings that contradict each other, or that the engine cannot honour.
    """
    is_chat = not job.raw and (job.kind == "chat" or (job.kind == "auto" and chat_template))
    _refuse_contradictions(job, is_chat=is_chat, can_chat=chat_template or limits.takes == "wire")
    has_template = bool(job.prompt or job.prompt_jinja)
    way = Way(
        is_wire=limits.takes == "wire",
        wraps_text=is_chat if has_template else is_chat and job.kind == "chat",
        system=job.system,
    )
    samplings = Samplings(job.sampling, limits)
    id_columns = (job.validate_.id_column,) if job.validate_.id_column else ("custom_id", "id")
    ids = _Ids(id_columns)
    shared = _Shared(way, samplings, ids, _Clash(job.output.prefix))
    request: Callable[[Row], Request]
    if job.prompt_jinja:
        request = _JinjaRows(shared, JinjaPrompt(job.prompt_jinja))
    elif job.prompt:
        request = _TemplateRows(shared, job.prompt)
    else:
        request = _FreeRows(shared, job)
    return Recipe(request=request, id_of=ids.of)


def validate(row: Row, recipe: Recipe) -> Request:
    """The request that a row makes.

    Raises:
        Unreadable: the line is no JSON object.
        InvalidRow: it lacks something, or holds something wrong.
    """
    return recipe.request(row)


def _refuse_contradictions(job: Job, *, is_chat: bool, can_chat: bool) -> None:
    reason = ""
    if job.raw and job.kind == "chat":
        reason = '`raw = true` and `kind = "chat"` exclude each other; keep one'
    elif job.kind == "chat" and not can_chat:
        reason = '`kind = "chat"`: the model has no chat template; set `engine.chat_template`'
    elif job.messages in ("prompt", "prompt_token_ids"):
        reason = f"`messages` is `{job.messages}`, expected another column: that one holds prompts"
    elif job.system and not is_chat:
        reason = "`system` goes with chat; this job is plain completion: put it into `prompt`"
    elif job.system and job.kind != "chat" and not (job.prompt or job.prompt_jinja):
        reason = '`system` needs `prompt`, `prompt_jinja` or `kind = "chat"`: it goes before the user message they make'
    if reason:
        raise ConfigError(reason=reason)


class _Shared(msgspec.Struct, frozen=True):
    way: Way
    samplings: Samplings
    ids: _Ids
    clash: _Clash


class _Clash:
    """Columns whose names begin as those of results do."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.mark = encode(prefix)[:-1]

    def refuse(self, line: bytes) -> None:
        for name in split_columns(line):
            if name.startswith(self._prefix):
                reason = (
                    f"column `{shown(name)}` begins as result columns do (`{self._prefix}`);"
                    " rename it, or set `output.prefix`"
                )
                raise InvalidRow(reason=reason)


class _Ids:
    """Finds the user's own id."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        struct = _struct("Ids", [("found%d" % i, name, Raw) for i, name in enumerate(columns)])
        self._decode = msgspec.json.Decoder(struct).decode if struct else None

    def among(self, columns: Columns) -> bytes:
        """Canonical id of a row. Raises InvalidRow for a list or an object."""
        for name in self.columns:
            found = canonical_id(columns.get(name, b""), name)
            if found:
                return found
        return b""

    def of(self, row: Row) -> bytes:
        """As `among`, from the line; empty where it cannot be read."""
        try:
            return self.among(self._columns(row.line))
        except RowError:
            return b""

    def _columns(self, line: bytes) -> Columns:
        if self._decode is not None:
            try:
                found = _tuple(self._decode(line))
            except _READ_ERRORS:
                return split_columns(line)
            return {name: bytes(raw) for name, raw in zip(self.columns, found, strict=True)}
        return split_columns(line)


def _struct(
    name: str, fields: Sequence[tuple[str, str, Any]]
) -> type[msgspec.Struct] | None:
    """A Struct to decode lines into: (attribute, column, type).

    Returns:
        None where columns repeat, or have names that msgspec cannot match; then rows take the long way.
    """
    columns = [column for _, column, _ in fields]
    if len(set(columns)) < len(columns):
        return None
    definitions = [
        (attribute, kind, _ABSENT) if kind is Raw else (attribute, kind, UNSET)
        for attribute, _, kind in fields
    ]
    renamed = {attribute: column for attribute, column, _ in fields}
    try:
        return msgspec.defstruct(name, definitions, rename=renamed, gc=False)
    except (TypeError, ValueError):
        return None


class _FreeRows:
    """Rows that bring their own `prompt`, `messages`, `prompt_token_ids`, or batch lines."""

    def __init__(self, shared: _Shared, job: Job) -> None:
        self._shared = shared
        self._model = job.engine.model
        self._fields = ("prompt", job.messages, "prompt_token_ids")
        self._mark, self._way = shared.clash.mark, shared.way
        self._of_job = shared.samplings.of_job
        ids = shared.ids.columns
        others = [*self._fields[1:], *ids[:-1], "url", "body", "tools", *CHECKS]
        raws = [(f"other{i}", column, Raw) for i, column in enumerate(others)]
        struct = _struct("Free", [("prompt", "prompt", str | msgspec.UnsetType), ("id", ids[-1], Raw), *raws])
        self._decode = msgspec.json.Decoder(struct).decode if struct else split_columns
        self._num_raws = len(raws)

    def __call__(self, row: Row) -> Request:
        line = row.line
        try:
            seen: Any = self._decode(line)
            text, raw_id = seen.prompt, seen.id
        except (*_READ_ERRORS, AttributeError):
            return self._long_way(row)
        absent = _tuple(seen).count(_ABSENT)
        id = b""
        if raw_id is _ABSENT:
            absent -= 1
        else:
            id = bytes(raw_id)
            if id[0] != 34 or b"\\" in id or id == b'""':
                id = canonical_id(id, self._shared.ids.columns[-1])
        if absent != self._num_raws or not text or self._mark in line:
            return self._long_way(row)
        way = self._way
        if way.is_wire or way.wraps_text:
            return text_request(way, Asked(row.key, id, self._of_job), text)
        return Request(row.key, self._of_job, id, text)

    def _long_way(self, row: Row) -> Request:
        shared = self._shared
        columns = split_columns(row.line)
        if shared.clash.mark in row.line:
            shared.clash.refuse(row.line)
        asked = Asked(row.key, shared.ids.among(columns), shared.samplings.of_job)
        if is_batch_line(columns):
            return batch_request(
                columns, asked, way=shared.way, samplings=shared.samplings, model=self._model
            )
        field = self._only_field(columns)
        own = {name: raw for name, raw in columns.items() if name in CHECKS}
        tools = row_tools(columns, "tools")
        sampling = shared.samplings.asked(own, extra=with_tools(columns, shared.way))
        asked = Asked(asked.key, asked.id, sampling)
        if field == "prompt":
            return prompt_request(shared.way, asked, columns[field], field, tools)
        if field == "prompt_token_ids":
            return ids_request(shared.way, asked, value_of(columns[field], field), field)
        return messages_request(shared.way, asked, columns[field], field, tools)

    def _only_field(self, columns: Columns) -> str:
        """The one of the three that is there; a null beside another counts as absent."""
        given = [name for name in self._fields if name in columns]
        filled = [name for name in given if columns[name] != b"null"] or given[:1]
        if len(filled) > 1:
            both = " and ".join(f"`{name}`" for name in filled)
            reason = f"{both} in one row, expected one of them"
            raise InvalidRow(reason=reason)
        if not filled:
            listed = ", ".join(f"`{name}`" for name in self._fields[1:])
            reason = f"`prompt` is missing, expected it or one of {listed}; {names(columns)}"
            raise InvalidRow(reason=reason)
        return filled[0]


class _TemplateRows:
    """Rows that are columns of a `prompt`."""

    def __init__(self, shared: _Shared, prompt: str) -> None:
        self._shared = shared
        self._template = compile_columns(prompt)
        self._mark, self._way = shared.clash.mark, shared.way
        self._of_job = shared.samplings.of_job
        self._literals = self._template.literals
        texts = list(dict.fromkeys(self._template.columns))
        self._order = [texts.index(column) for column in self._template.columns]
        ids = shared.ids.columns
        raws = [("sampling", "sampling", Raw), ("id", ids[-1], Raw)]
        raws += [(f"id{i}", column, Raw) for i, column in enumerate(ids[:-1])]
        columns = [(f"text{i}", column, str | msgspec.UnsetType) for i, column in enumerate(texts)]
        struct = _struct("Template", [*raws, *columns])
        self._decode = msgspec.json.Decoder(struct).decode if struct else split_columns
        self._first = len(raws)
        self._num_absent = len(raws) - 1

    def __call__(self, row: Row) -> Request:
        line = row.line
        try:
            seen: Any = self._decode(line)
            raw_id = seen.id
        except (*_READ_ERRORS, AttributeError):
            return self._long_way(row)
        values = _tuple(seen)
        absent = values.count(_ABSENT)
        id = b""
        if raw_id is _ABSENT:
            absent -= 1
        else:
            id = bytes(raw_id)
            if id[0] != 34 or b"\\" in id or id == b'""':
                id = canonical_id(id, self._shared.ids.columns[-1])
        if absent != self._num_absent or UNSET in values or self._mark in line:
            return self._long_way(row)
        parts = [self._literals[0]]
        for i, literal in zip(self._order, self._literals[1:], strict=True):
            parts += (values[self._first + i], literal)
        return self._filled(Asked(row.key, id, self._of_job), parts)

    def _filled(self, asked: Asked, parts: list[str]) -> Request:
        text = "".join(parts)
        if not text:
            reason = f"the prompt is empty: so are {', '.join(f'`{c}`' for c in self._template.columns)}"
            raise InvalidRow(reason=reason)
        return text_request(self._way, asked, text, parts)

    def _long_way(self, row: Row) -> Request:
        columns = split_columns(row.line)
        asked = _asked_of_columns(self._shared, row, columns)
        return self._filled(asked, fill(self._template, columns))


class _JinjaRows:
    """Rows that are columns of a `prompt_jinja`."""

    def __init__(self, shared: _Shared, template: JinjaPrompt) -> None:
        self._shared = shared
        self._template = template

    def __call__(self, row: Row) -> Request:
        columns = split_columns(row.line)
        asked = _asked_of_columns(self._shared, row, columns)
        parts = self._template.parts(columns)
        text = "".join(parts)
        if not text:
            reason = "`prompt_jinja` gives an empty prompt for this row, expected text"
            raise InvalidRow(reason=reason)
        return text_request(self._shared.way, asked, text, parts)


def _asked_of_columns(shared: _Shared, row: Row, columns: Columns) -> Asked:
    """Id and sampling of a row that is columns: only its column `sampling` is the latter."""
    if shared.clash.mark in row.line:
        shared.clash.refuse(row.line)
    id = shared.ids.among(columns)
    raw = columns.get("sampling", b"null")
    if raw == b"null":
        return Asked(row.key, id, shared.samplings.of_job)
    if raw[:1] != b"{":
        reason = f"`sampling` is {what_is(value_of(raw, 'sampling'))}, expected an object"
        raise InvalidRow(reason=reason)
    own = split_columns(raw)
    for name in own:
        if name not in CHECKS:
            known = ", ".join(f"`{key}`" for key in CHECKS)
            reason = f"`sampling.{shown(name)}` is unknown, known: {known}"
            raise InvalidRow(reason=reason)
    return Asked(row.key, id, shared.samplings.asked(own, prefix="sampling."))
