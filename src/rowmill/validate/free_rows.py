"""Rows that bring their own `prompt`, `messages` or `prompt_token_ids`, and batch lines -> Requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.errors import InvalidRow, MissingColumn
from rowmill.rows import AnyRow, Request, Sampling, TableRow
from rowmill.validate.asked import CHECKS
from rowmill.validate.batch_lane import BatchLane
from rowmill.validate.batch_lines import batch_request, is_batch_line, table_body
from rowmill.validate.columns import ColumnTemplate
from rowmill.validate.ids import canonical_id
from rowmill.validate.lane import ABSENT, AT_ONCE, LEAVE, Lane, read_all
from rowmill.validate.lines import Columns, names, value_of
from rowmill.validate.rules import Rules
from rowmill.validate.sampled_lane import SampledLane
from rowmill.validate.shapes import (
    TOOL_FIELDS,
    Asked,
    ids_request,
    messages_request,
    prompt_request,
    row_tools,
    text_request,
    with_tools,
)
from rowmill.validate.table_lane import TableLane, plain_requests

_FREE_COLUMNS = frozenset(
    (
        *TOOL_FIELDS,
        *("prompt", "prompt_token_ids", "url", "method", "body", "custom_id"),
    )
)
_ONLY_PROMPT = ColumnTemplate(("", ""), ("prompt",))


def free_columns(*, may_sample: bool) -> frozenset[str]:
    """Columns that mean something where a row brings its own prompt."""
    return _FREE_COLUMNS.union(CHECKS) if may_sample else _FREE_COLUMNS


class FreeRows:
    """Callable: Row -> Request, or RowError."""

    def __init__(self, rules: Rules, job: Job, *, may_sample: bool = True) -> None:
        """Rows of one job.

        Args:
            may_sample: Columns such as `temperature` hold a row's own sampling; else they are columns as any.
        """
        self._rules, self._may_sample = rules, may_sample
        self._checks = frozenset(CHECKS if may_sample else ())
        model = job.engine.model or rules.way.served
        self._models = tuple(dict.fromkeys((model, *job.validate_.model_names)))
        self._fields = ("prompt", job.messages, "prompt_token_ids")
        self._of_job = rules.samplings.of_job
        self._is_plain = not (rules.way.is_wire or rules.way.wraps_text)
        *others, self._id_column = rules.ids.names
        never = {*self._fields[1:], *others, "body", *TOOL_FIELDS, *self._checks}
        self.needed = (frozenset((*self._fields, "body")),)
        self.used = frozenset(("url", "method", "custom_id", *TOOL_FIELDS, *self._checks))
        self._batch_lane = BatchLane(rules.way)
        self._lane = Lane(("prompt",), self._id_column, never=never, prefix=rules.prefix)
        self._sampled_lane = SampledLane(
            rules.samplings, self._id_column, never=never, prefix=rules.prefix
        )
        self._table_lane = TableLane(
            _ONLY_PROMPT,
            rules.ids.names,
            never=never - {*rules.ids.names},
            prefix=rules.prefix,
            is_own=True,
        )

    def __call__(self, row: AnyRow) -> Request:
        if type(row) is TableRow:
            picked = self._table_lane.pick(row)
            if picked is None or not picked[0]:
                return self._long_way(row)
            return self._of_text(row, picked[0], picked[2])
        if self._batch_lane.is_taught and (request := self._batch_lane.request(row)):
            return request
        if self._sampled_lane.is_taught:
            return self._sampled(row)
        try:
            seen: Any = self._lane.decode(row.line)
            text, raw = seen.text0, seen.id
        except (*LEAVE, AttributeError):
            return self._long_way(row)
        if not text:  # absent, or empty
            return self._long_way(row)
        id = b"" if raw is ABSENT else canonical_id(bytes(raw), self._id_column)
        return self._of_text(row, text, id)

    def requests(self, rows: Sequence[AnyRow]) -> list[Request] | None:
        """As this of each row; None where they are to be asked one by one, and looked at for what stands twice."""
        if not self._is_plain or not rows:
            return None
        if type(rows[0]) is TableRow:
            return self._table_lane.requests(rows, self._of_job)
        return self._batch_lane.requests(rows)

    def of_lines(self, rows: Sequence[AnyRow]) -> list[Request] | None:
        """The same of lines with a prompt; what stands twice in them is still to be looked for."""
        if not self._is_plain or self._batch_lane.is_taught:
            return None
        requests: list[Request] = []
        for at in range(0, len(rows), AT_ONCE):
            part = rows[at : at + AT_ONCE]
            found = read_all(self._lane.decode, part, 1, self._id_column)
            if found is None or not all(found[0][0]):
                return None
            requests += plain_requests(part, self._of_job, found[1], found[0][0], repeat(()))
        return requests

    def _sampled(self, row: AnyRow) -> Request:
        """A row where some have sampling of their own: this one has it, has none, or must take the long way."""
        found = self._sampled_lane.read(row)
        return self._of_text(row, *found) if found else self._long_way(row)

    def _of_text(
        self, row: AnyRow, text: str, id: bytes, sampling: Sampling | None = None
    ) -> Request:
        if self._is_plain:
            return Request(row.key, sampling or self._of_job, id, text)
        return text_request(self._rules.way, Asked(row.key, id, sampling or self._of_job), text)

    def _long_way(self, row: AnyRow) -> Request:
        rules = self._rules
        columns, id = rules.columns(row)
        if is_batch_line(columns, self._fields):
            if type(row) is TableRow:
                columns = {**columns, "body": table_body(columns.get("body", b"null"))}
            asked = Asked(row.key, id, rules.samplings.of_job)
            request = batch_request(
                columns, asked, way=rules.way, samplings=rules.samplings, models=self._models
            )
            if not self._may_sample:
                # What a body says of it is checked, as all of a body is, and has no meaning.
                request = msgspec.structs.replace(request, sampling=self._of_job)
            if rules.ids.names[0] == "custom_id":
                self._batch_lane.learn(row, columns, request)
            return request
        field = self._only_field(columns)
        own = {name: raw for name, raw in columns.items() if name in self._checks}
        tools = row_tools(columns, rules.way)
        sampling = rules.samplings.asked(own, extra=with_tools(columns, rules.way))
        asked = Asked(row.key, id, sampling)
        if field == "prompt_token_ids":
            return ids_request(rules.way, asked, value_of(columns[field], field), field)
        if field != "prompt":
            return messages_request(rules.way, asked, columns[field], field, tools)
        request = prompt_request(rules.way, asked, columns[field], field, tools)
        if not tools and (own or self._sampled_lane.is_taught):
            self._sampled_lane.learn(columns, own)
        else:
            self._lane.learn(columns)
        return request

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
            raise MissingColumn(reason=reason)
        return filled[0]
