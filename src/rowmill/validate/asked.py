"""How a row wants its answer drawn -> Sampling, laid over the job's own.

Promises: every value has its type and range checked; what the engine cannot honour is refused, never ignored;
rows that ask for the same share one Sampling object.
Knows nothing of: engines beyond the names of what they honour.
Memory: at most 4,096 distinct settings are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from rowmill.config import SamplingConfig
from rowmill.errors import ConfigError, InvalidRow
from rowmill.rows import Limits, Sampling
from rowmill.validate.lines import value_of, what_is, word
from rowmill.validate.once import refuse_repeated_inside
from rowmill.validate.schemas import is_balanced, schema_mistake

_ALWAYS = frozenset(("temperature", "top_p", "max_tokens", "stop", "seed"))
_MAX_KEPT = 4096
_CONSTRAINTS: dict[str, Any] = {"choices": (), "schema": "", "regex": ""}
_PLAIN = Sampling()

Check = Callable[[Any, str], dict[str, Any]]


def _refuse(field: str, found: str, expected: str) -> NoReturn:
    raise InvalidRow(reason=f"`{field}` is {found}, expected {expected}")


def _whole(name: str, least: int, most: int) -> Check:
    def check(value: Any, field: str) -> dict[str, Any]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # A table with gaps writes its whole numbers as 64.0.
        if not is_number or value != value // 1 or not least <= value <= most:
            bound = f"of {least} or more" if most >= 2**31 else f"from {least} to {most}"
            _refuse(field, _number_or_kind(value), f"a whole number {bound}")
        return {name: int(value)}

    return check


def _real(name: str, allowed: str, is_allowed: Callable[[float], bool]) -> Check:
    def check(value: Any, field: str) -> dict[str, Any]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not is_allowed(value):
            _refuse(field, _number_or_kind(value), f"a number{allowed}")
        return {name: float(value)}

    return check


def _number_or_kind(value: Any) -> str:
    is_short = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_short and abs(value) < 1e15 else what_is(value)


def _stop(value: Any, field: str) -> dict[str, Any]:
    return {"stop": _strings([value] if isinstance(value, str) else value, field)}


def _choices(value: Any, field: str) -> dict[str, Any]:
    chosen = _strings(value, field)
    if not chosen:
        _refuse(field, "an empty list", "a list of non-empty strings")
    return {**_CONSTRAINTS, "choices": chosen}


def _strings(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        _refuse(field, what_is(value), "a list of non-empty strings")
    for i, entry in enumerate(value):
        if not isinstance(entry, str) or not entry:
            _refuse(f"{field}[{i}]", what_is(entry), "a non-empty string")
    return tuple(value)


def _regex(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, str) or not value:
        _refuse(field, what_is(value), "a regular expression")
    if not is_balanced(value):
        _refuse(field, "a string with an open bracket", "a regular expression")
    return {**_CONSTRAINTS, "regex": value}


def _schema(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(field, what_is(value), "a JSON Schema object")
    mistake = schema_mistake(value, field)
    if mistake:
        raise InvalidRow(reason=mistake)
    return {**_CONSTRAINTS, "schema": json.dumps(value, ensure_ascii=False)}


def _response_format(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(field, what_is(value), "an object with `type`")
    kind = value.get("type")
    if kind == "text":
        return _CONSTRAINTS
    if kind == "json_object":
        return {**_CONSTRAINTS, "schema": '{"type": "object"}'}
    if kind != "json_schema":
        _refuse(f"{field}.type", word(kind), "one of `text`, `json_object`, `json_schema`")
    named = value.get("json_schema")
    if not isinstance(named, dict):
        _refuse(f"{field}.json_schema", what_is(named), "an object with `schema`")
    return _schema(named.get("schema"), f"{field}.json_schema.schema")


def _logprobs(value: Any, field: str) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"logprobs": 0 if value else None}
    return _whole("logprobs", 0, 1000)(value, field)


def _seed(value: Any, field: str) -> dict[str, Any]:
    # Given for this row, it is the row's: the job's rule is for rows that say nothing.
    return {**_whole("seed", -(2**63), 2**63 - 1)(value, field), "seed_per_row": False}


def _lora(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, str):
        _refuse(
            field, what_is(value), "an adapter's name, or an empty string for the model itself"
        )
    return {"lora": value}


def _flag(name: str) -> Check:
    def check(value: Any, field: str) -> dict[str, Any]:
        if not isinstance(value, bool):
            _refuse(field, what_is(value), "true or false")
        return {name: value}

    return check


CHECKS: Mapping[str, Check] = {
    "temperature": _real("temperature", " of 0 or more", lambda x: x >= 0),
    "top_p": _real("top_p", " above 0 and up to 1", lambda x: 0 < x <= 1),
    "top_k": _whole("top_k", -1, 2**31),
    "min_p": _real("min_p", " from 0 to 1", lambda x: 0 <= x <= 1),
    "max_completion_tokens": _whole("max_tokens", 1, 2**31),
    "max_tokens": _whole("max_tokens", 1, 2**31),
    "n": _whole("n", 1, 2**31),
    "stop": _stop,
    "seed": _seed,
    "presence_penalty": _real("presence_penalty", "", lambda _: True),
    "frequency_penalty": _real("frequency_penalty", "", lambda _: True),
    "repetition_penalty": _real("repetition_penalty", " above 0", lambda x: x > 0),
    "logprobs": _logprobs,
    "top_logprobs": _whole("logprobs", 0, 1000),
    "choices": _choices,
    "schema": _schema,
    "response_format": _response_format,
    "regex": _regex,
    "ignore_eos": _flag("ignore_eos"),
    "return_token_ids": _flag("return_token_ids"),
    "lora": _lora,
}
"""Keys that a row may use for its own sampling, in the order in which they are laid over each other."""


class Samplings:
    """The job's sampling, and each row's own laid over it."""

    def __init__(self, job: SamplingConfig, limits: Limits) -> None:
        self._limits = limits
        self.of_job = _from_config(job)
        self._kept: dict[bytes, Sampling] = {}
        unknown = self._not_honoured(self.of_job)
        if unknown:
            named = ", ".join(f"`sampling.{name}`" for name in unknown)
            reason = f"{named}: this engine cannot do it; {self._offer()}"
            raise ConfigError(reason=reason)

    def asked(
        self, columns: Mapping[str, bytes], *, extra: bytes = b"", prefix: str = ""
    ) -> Sampling:
        """The job's sampling with a row's own values over it.

        Args:
            columns: The row's sampling keys -> JSON text.
            extra: JSON object with fields for the endpoint.
            prefix: What names of fields begin with in sentences, such as `body.`.

        Raises:
            InvalidRow: a value of wrong type or out of range, or one that the engine cannot honour.
        """
        if not columns and not extra:
            return self.of_job
        key = b"\0".join(
            [
                prefix.encode(),
                extra,
                *(p for kv in columns.items() for p in (kv[0].encode(), kv[1])),
            ]
        )
        found = self._kept.get(key)
        if found is None:
            found = self._lay_over(columns, extra, prefix)
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    def _lay_over(self, columns: Mapping[str, bytes], extra: bytes, prefix: str) -> Sampling:
        fields: dict[str, Any] = {}
        for name, check in CHECKS.items():
            raw = columns.get(name, b"null")
            if raw != b"null":
                value = value_of(raw, prefix + name)
                refuse_repeated_inside(raw, prefix + name, value)
                new = check(value, prefix + name)
                _refuse_two(fields, new, name, prefix)
                # `text` takes off what the job holds answers to, nothing of the row's own; 0 gives back no `logprobs`.
                is_weak = new is _CONSTRAINTS or (name == "top_logprobs" and _is_off(fields))
                fields = {**new, **fields} if is_weak else {**fields, **new}
        if extra:
            own = {**json.loads(self.of_job.extra or "{}"), **json.loads(extra)}
            fields["extra"] = json.dumps(own, ensure_ascii=False)
        sampling = msgspec.structs.replace(self.of_job, **fields)
        unknown = self._not_honoured(sampling)
        if unknown:
            reason = f"`{prefix}{unknown[0]}`: this engine cannot do it; {self._offer()}"
            raise InvalidRow(reason=reason)
        return sampling

    def _not_honoured(self, sampling: Sampling) -> list[str]:
        honoured = _ALWAYS.union(self._limits.sampling)
        if self._limits.takes == "wire":
            honoured |= {"extra"}
        return [
            name
            for name in Sampling.__struct_fields__
            if name not in honoured and getattr(sampling, name) != getattr(_PLAIN, name)
        ]

    def _offer(self) -> str:
        named = ", ".join(f"`{name}`" for name in sorted(_ALWAYS.union(self._limits.sampling)))
        return f"it takes {named}"


def _refuse_two(fields: dict[str, Any], new: dict[str, Any], name: str, prefix: str) -> None:
    """Two keys for one thing: equal values pass, others do not."""
    if (
        name == "max_tokens"
        and fields.get("max_tokens", new["max_tokens"]) != new["max_tokens"]
    ):
        reason = f"`{prefix}max_tokens` and `{prefix}max_completion_tokens` differ; keep one"
        raise InvalidRow(reason=reason)
    tops = new.get("logprobs") if name == "top_logprobs" else None
    if tops and _is_off(fields):
        reason = f"`{prefix}logprobs` is false and `{prefix}top_logprobs` is {tops}; keep one"
        raise InvalidRow(reason=reason)
    is_held = "choices" in new and new is not _CONSTRAINTS
    given = [key for key in _CONSTRAINTS if is_held and fields.get(key)]
    if given:
        reason = f"`{prefix}{given[0]}` and `{prefix}{name}` exclude each other; keep one"
        raise InvalidRow(reason=reason)


def _is_off(fields: dict[str, Any]) -> bool:
    """Whether the row wants no log-probabilities."""
    return fields.get("logprobs", 0) is None


def _from_config(job: SamplingConfig) -> Sampling:
    fields = job.model_dump(exclude={"schema_", "extra"})
    if job.schema_ is not None:
        mistake = schema_mistake(job.schema_, "sampling.schema")
        if mistake:
            raise ConfigError(reason=mistake)
        fields["schema"] = json.dumps(job.schema_, ensure_ascii=False)
    if job.regex and not is_balanced(job.regex):
        reason = "`sampling.regex` has an open bracket, expected a regular expression"
        raise ConfigError(reason=reason)
    if any(not choice for choice in job.choices):
        reason = "`sampling.choices` holds an empty string, expected non-empty strings"
        raise ConfigError(reason=reason)
    extra = json.dumps(job.extra, ensure_ascii=False) if job.extra else ""
    return Sampling(**fields, extra=extra)
