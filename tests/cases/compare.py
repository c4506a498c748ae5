"""Results of a run -> what differs from what a case expects, a sentence each.

Promises: ids compare with their JSON type; missing, extra and double records are told; files are read strictly:
UTF-8, one object a line, each line ended by LF, no NaN or Infinity.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

Record = dict[str, Any]


def read_records(file: Path) -> list[Record]:
    """The objects of a JSON Lines file.

    Raises:
        ValueError: the file is not strict; names file and line.
    """
    content = file.read_bytes()
    if content and not content.endswith(b"\n"):
        reason = f"{file}: the last line has no LF"
        raise ValueError(reason)
    return [_record(line, f"{file}:{n}") for n, line in enumerate(content.splitlines(True), 1)]


def _record(line: bytes, place: str) -> Record:
    def refuse(literal: str) -> NoReturn:
        reason = f"{place}: `{literal}` is not JSON"
        raise ValueError(reason)

    record = json.loads(line.decode("utf-8"), parse_constant=refuse)
    if not isinstance(record, dict):
        reason = f"{place}: no object"
        raise ValueError(reason)  # noqa: TRY004 - one kind of error for all that is not strict
    return record


def id_of(record: Mapping[str, Any]) -> Any:
    """The user's id of a result; its FILE:LINE where the row has none."""
    for name in ("custom_id", "id", "rowmill_row"):
        if record.get(name) is not None and record[name] != "":
            return record[name]
    return None


def by_id(records: Iterable[Record]) -> dict[Any, Record]:
    """Record by id, for ids that are strings or numbers."""
    return {id_of(record): record for record in records}


def differences(expected: Iterable[Record], records: Sequence[Record]) -> list[str]:
    """What is not as expected; empty where all is.

    Args:
        expected: `{"id", "outcome": "ok" | "error" | "any", "text" (one or a list), "contains"}` each.
        records: of a run.
    """
    wanted = {_key(record["id"]): record for record in expected}
    keys = [_key(id_of(record)) for record in records]
    found = dict(zip(keys, records, strict=True))
    told = [f"twice: id {key}" for key, count in Counter(keys).items() if count > 1]
    told += [f"missing: id {key}" for key in wanted if key not in found]
    told += [f"extra: id {key}" for key in found if key not in wanted]
    for key, record in found.items():
        if key in wanted:
            told += [f"id {key}: {what}" for what in _mismatches(wanted[key], record)]
    return told


def _key(value: Any) -> str:
    return json.dumps(value)


def _mismatches(wanted: Record, record: Record) -> list[str]:
    told = []
    error, outcome = record["rowmill_error"], wanted["outcome"]
    if (record["rowmill_status"] == "ok") != (error is None):
        told.append(f"status {record['rowmill_status']!r} beside error {error!r}")
    if outcome == "ok":
        told += _text_mismatches(wanted, record)
    elif outcome == "error":
        if error is None:
            told.append(f"expected an error, got text {record['rowmill_text']!r}")
        else:
            told += [
                f"the error does not name {part!r}: {error!r}"
                for part in wanted.get("contains", [])
                if part.lower() not in error.lower().replace(",", "")
            ]
    return told


def _text_mismatches(wanted: Record, record: Record) -> list[str]:
    if record["rowmill_error"] is not None:
        return [f"expected ok, got error {record['rowmill_error']!r}"]
    if "text" not in wanted:
        return []
    texts = wanted["text"] if isinstance(wanted["text"], list) else [wanted["text"]]
    text = record["rowmill_text"]
    return [] if text in texts else [f"text {text!r}, expected one of {texts!r}"]
