"""Rows that hold a query and what it is held against -> Requests."""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.errors import ConfigError, InvalidRow, MissingColumn
from rowmill.rows import AnyRow, Request
from rowmill.validate.lines import Columns, names, value_of, what_is
from rowmill.validate.rules import Rules


class PairRows:
    """Callable: Row -> Request, or RowError: a query in `text`, what it is held against in `documents`."""

    def __init__(self, rules: Rules, job: Job) -> None:
        """Rows of one job.

        Raises:
            ConfigError: One column is to be both sides.
        """
        asked = job.score
        self._is_list = job.kind == "rerank"
        self._query = asked.query
        self._documents = asked.documents if self._is_list else asked.document
        if self._query == self._documents:
            reason = (
                f"`score.query` and what it is held against are both column `{self._query}`"
            )
            raise ConfigError(reason=reason)
        self.columns = (self._query, self._documents)
        self._rules = msgspec.structs.replace(rules, used=rules.used.union(self.columns))
        self.needed = tuple(frozenset((name,)) for name in self.columns)
        self.used: frozenset[str] = frozenset()

    def __call__(self, row: AnyRow) -> Request:
        columns, id = self._rules.columns(row)
        query = _text(self._value(columns, self._query), self._query)
        found = self._value(columns, self._documents)
        documents = (
            _texts(found, self._documents) if self._is_list else [_text(found, self._documents)]
        )
        is_wire = self._rules.way.is_wire
        asked = {"query": query, "documents": documents}
        return Request(
            key=row.key,
            sampling=self._rules.samplings.of_job,
            id=id,
            text=query,
            documents=documents,
            wire=msgspec.json.encode(asked) if is_wire else b"",
            wire_field="documents" if is_wire else "",
        )

    def _value(self, columns: Columns, name: str) -> Any:
        if name not in columns:
            reason = f"`{name}` is missing, expected it; {names(columns)}"
            raise MissingColumn(reason=reason)
        return value_of(columns[name], name)


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not value:
        reason = f"`{name}` is {what_is(value)}, expected a list of texts, one at least"
        raise InvalidRow(reason=reason)
    return [_text(one, f"{name}[{at}]") for at, one in enumerate(value)]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        reason = f"`{name}` is {what_is(value)}, expected text"
        raise InvalidRow(reason=reason)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        reason = f"`{name}` holds half a surrogate pair (\\ud800 to \\udfff), expected whole characters"
        raise InvalidRow(reason=reason) from error
    return value
