"""Rows that are columns of a `prompt` or `prompt_jinja` -> Requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import UNSET

from rowmill.errors import ConfigError, InvalidRow
from rowmill.rows import AnyRow, Request, TableRow
from rowmill.validate.asked import CHECKS
from rowmill.validate.columns import column_text, compile_columns, fill
from rowmill.validate.ids import canonical_id
from rowmill.validate.jinja_prompt import JinjaPrompt
from rowmill.validate.lane import ABSENT, AT_ONCE, LEAVE, Lane, read_all
from rowmill.validate.lines import Columns, shown, split_columns, value_of, what_is
from rowmill.validate.once import repeated_columns_of
from rowmill.validate.row_orders import RowOrders
from rowmill.validate.rules import Rules
from rowmill.validate.shapes import Asked, text_request
from rowmill.validate.table_lane import TableLane, plain_requests, spans_of

Loose = list[tuple[int, str]]
"""Places of template columns that are not always strings, and their names."""


class TemplateRows:
    """Callable: Row -> Request, or RowError, by a `prompt`."""

    def __init__(
        self,
        rules: Rules,
        prompt: str,
        *,
        may_sample: bool = True,
        orders: RowOrders | None = None,
    ) -> None:
        """Rows of one job.

        Args:
            orders: Of the prompt's parts, by what a row says; None: as they stand.
            may_sample: Column `sampling` holds a row's own sampling; else it is a column as any.
        """
        self._rules, self._may_sample, self._orders = rules, may_sample, orders
        special = frozenset(("sampling",) if may_sample else ())
        self._template = compile_columns(prompt)
        self._of_job = rules.samplings.of_job
        texts = list(dict.fromkeys(self._template.columns))
        if special.intersection(texts):
            reason = (
                "`prompt`: column `sampling` holds a row's own sampling, no text; rename it"
            )
            raise ConfigError(reason=reason)
        self._num_texts = len(texts)
        self._places = [texts.index(name) for name in self._template.columns]
        attributes = [f"text{texts.index(name)}" for name in self._template.columns]
        self._values = attrgetter(*attributes, "id", "id")  # a tuple, even without columns
        self._blank = [""] * (2 * len(attributes) + 1)
        self._blank[::2] = self._template.literals
        self._is_plain = not (rules.way.is_wire or rules.way.wraps_text or orders)
        *others, self._id_column = rules.ids.names
        never = {*special, *others}
        self.needed = tuple(frozenset((name,)) for name in texts)
        self.used = special
        self._lane = Lane(texts, self._id_column, never=never, prefix=rules.prefix)
        # One value, so that another thread never sees the one without the other.
        self._fast: tuple[Callable[[bytes], Any], Loose] = (self._lane.decode, [])
        self._table_lane = TableLane(
            self._template, rules.ids.names, never=special, prefix=rules.prefix
        )

    def __call__(self, row: AnyRow) -> Request:
        if type(row) is TableRow:
            picked = self._table_lane.pick(row)
            return self._long_way(row) if picked is None else self._asked(row, *picked)
        try:
            decode, loose = self._fast
            *values, raw, _ = self._values(decode(row.line))
            if loose:
                _read_loose(values, loose)
        except (*LEAVE, AttributeError):
            return self._long_way(row)
        if UNSET in values:
            return self._long_way(row)
        id = b"" if raw is ABSENT else canonical_id(bytes(raw), self._id_column)
        return self._joined(row, values, id)

    def requests(self, rows: Sequence[AnyRow]) -> list[Request] | None:
        """As this of each row; None where they are to be asked one by one, and looked at for what stands twice."""
        if not self._is_plain or not rows or type(rows[0]) is not TableRow:
            return None
        return self._table_lane.requests(rows, self._of_job)

    def of_lines(self, rows: Sequence[AnyRow]) -> list[Request] | None:
        """The same of lines; what stands twice in them is still to be looked for."""
        decode, loose = self._fast
        if loose or not self._is_plain:
            return None
        requests: list[Request] = []
        for at in range(0, len(rows), AT_ONCE):
            part = rows[at : at + AT_ONCE]
            found = read_all(decode, part, self._num_texts, self._id_column)
            if found is None:
                return None
            columns = [found[0][i] for i in self._places]
            spans = spans_of(self._template.literals, columns, len(part))
            texts = list(map("".join, spans))
            if not all(texts):
                return None
            requests += plain_requests(part, self._of_job, found[1], texts, spans)
        return requests

    def _joined(self, row: AnyRow, values: list[Any], id: bytes) -> Request:
        parts = self._blank.copy()
        parts[1::2] = values
        return self._asked(row, "".join(parts), parts, id)

    def _asked(self, row: AnyRow, text: str, parts: Sequence[str], id: bytes) -> Request:
        if text and self._is_plain:
            return Request(row.key, self._of_job, id, text, data_spans=parts)
        return self._filled(Asked(row.key, id, self._of_job), parts)

    def _filled(self, asked: Asked, parts: Sequence[str]) -> Request:
        if self._orders is not None:
            parts = self._orders(parts)
        text = "".join(parts)
        if not text:
            columns = ", ".join(f"`{name}`" for name in self._template.columns)
            reason = f"the prompt is empty, for so is {columns}; expected text"
            raise InvalidRow(reason=reason)
        return text_request(self._rules.way, asked, text, parts)

    def _long_way(self, row: AnyRow) -> Request:
        columns, id = self._rules.columns(row)
        asked = _asked(self._rules, row.key, id, columns, may_sample=self._may_sample)
        parts = fill(self._template, columns)
        self._learn(columns)
        return self._filled(asked, parts)

    def _learn(self, columns: Columns) -> None:
        self._lane.learn(columns)
        loose = {name for _, name in self._fast[1]}
        for name in self._template.columns:
            if name not in loose and not columns[name].startswith(b'"'):
                self._lane.loosen(name)
                loose.add(name)
        places = [(i, name) for i, name in enumerate(self._template.columns) if name in loose]
        self._fast = (self._lane.decode, places)


def _read_loose(values: list[Any], loose: Loose) -> None:
    """Texts of columns that the lane reads as JSON text, in place."""
    for i, name in loose:
        raw = values[i]
        values[i] = UNSET if raw is ABSENT else column_text(bytes(raw), name)


class JinjaRows:
    """Callable: Row -> Request, or RowError, by a `prompt_jinja`."""

    def __init__(self, rules: Rules, template: JinjaPrompt, *, may_sample: bool = True) -> None:
        """Rows of one job; `may_sample` as of `TemplateRows`."""
        self._rules, self._may_sample = rules, may_sample
        self._template = template
        self.needed: tuple[frozenset[str], ...] = ()
        self.used = template.columns.union(("sampling",) if may_sample else ())

    def __call__(self, row: AnyRow) -> Request:
        columns, id = self._rules.columns(row)
        asked = _asked(self._rules, row.key, id, columns, may_sample=self._may_sample)
        parts = self._template.parts(columns)
        text = "".join(parts)
        if not text:
            reason = "`prompt_jinja` gives an empty prompt for this row, expected text"
            raise InvalidRow(reason=reason)
        return text_request(self._rules.way, asked, text, parts)


def _asked(rules: Rules, key: int, id: bytes, columns: Columns, *, may_sample: bool) -> Asked:
    """Sampling of a row that is columns: only its column `sampling` is that, an object."""
    raw = columns.get("sampling", b"null") if may_sample else b"null"
    if raw == b"null":
        return Asked(key, id, rules.samplings.of_job)
    if raw[:1] != b"{":
        reason = f"`sampling` is {what_is(value_of(raw, 'sampling'))}, expected an object"
        raise InvalidRow(reason=reason)
    own = split_columns(raw)
    if len(repeated := repeated_columns_of(raw, own)):
        reason = f"`sampling.{shown(repeated[0])}` is given twice, expected each key once"
        raise InvalidRow(reason=reason)
    for name in own:
        if name not in CHECKS:
            known = ", ".join(f"`{key}`" for key in CHECKS)
            reason = f"`sampling.{shown(name)}` is unknown, known: {known}"
            raise InvalidRow(reason=reason)
    return Asked(key, id, rules.samplings.asked(own, prefix="sampling."))
