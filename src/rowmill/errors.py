"""Every error of rowmill, as a tree. A bad row is data; a bad run is an exception.

    RowmillError
    +-- ConfigError        the user can mend it before the run     exit 2
    |   +-- BadJob         several mistakes at once, each a line
    |   +-- UnknownName    names the nearest valid one and all valid ones
    |   +-- MissingExtra   gives the pip line
    |   +-- BadSource      the input cannot be read
    |   +-- BadOutput      the output cannot be written, or is the input
    |   +-- BadSink        a vector store is not as the job wants it
    |   +-- DuplicateIds   names the ids and their lines
    |   +-- RunMismatch    names the keys that differ
    |   +-- OutputInUse    names the owner
    +-- RowError           this row is bad: recorded, the run goes on
    |   +-- InvalidRow     field, what was found, what was expected
    |   |   +-- MissingColumn  what the job asks with is not there
    |   +-- BadMedia       an image or audio is broken, too large or not allowed
    |   +-- NotFetched     what a URL names could not be had
    |   +-- Unreadable     no JSON object, or columns named as ours
    |   +-- TooLong        prompt tokens, asked tokens, limit
    |   +-- Refused        the engine said no for good
    |   +-- GaveUp         retries of a transient failure are used up
    |   +-- KilledEngine   the engine died on this row, alone, again
    +-- Transient          the same call may work later; only engines/retry.py and load/ catch it
    |   +-- RateLimited    retry_after_s
    |   +-- TimedOut
    |   +-- Disconnected
    |   +-- SinkDown       a vector store does not answer; load/ tries again
    +-- Stopped            every further row would be refused       exit 5
    +-- EngineDied         this worker is finished                  exit 3
    |   +-- NeverReady     an engine took too long to start         exit 5
    +-- StorageError       disk or bucket failed                    exit 3
    |   +-- InputChanged   a file of the input is no longer what it was
    +-- SinkFailed         a vector store took not all vectors      exit 3

The class takes data and builds the sentence: what, where, got what, allowed what, do what.
No payload text, prompts may be private. Every class survives pickling.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

CUT_IT = 'set `validate.too_long = "truncate_left"`'
"""What helps where a prompt is too long and may be cut."""


def _rebuild(cls: type[RowmillError], fields: dict[str, Any]) -> RowmillError:
    return cls(**fields)


class RowmillError(Exception):
    """Root of all errors. `fields` keeps what was given, for programs and for pickling."""

    exit_code: ClassVar[int] = 70

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(self.sentence())

    def sentence(self) -> str:
        """One line: what, where, got what, allowed what, do what."""
        return str(self.fields.get("reason", type(self).__name__))

    def __reduce__(self) -> tuple[Any, ...]:
        """Keyword-only constructors break pickling silently; rebuild by name."""
        return _rebuild, (type(self), self.fields)


class ConfigError(RowmillError):
    """Something the user can mend before the run; `reason` is the sentence."""

    exit_code = 2


class BadJob(ConfigError):
    """A job file or flags with mistakes, all named at once."""

    def __init__(self, *, where: str, mistakes: Sequence[str]) -> None:
        super().__init__(where=where, mistakes=list(mistakes))

    def sentence(self) -> str:
        where, mistakes = self.fields["where"], self.fields["mistakes"]
        if len(mistakes) == 1:
            return f"{where}: {mistakes[0]}"
        lines = "".join(f"\n  - {mistake}" for mistake in mistakes)
        return f"{where}: {len(mistakes)} mistakes{lines}"


class UnknownName(ConfigError):
    """A name that is not in a fixed set."""

    def __init__(self, *, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(what=what, name=name, known=sorted(known))

    def sentence(self) -> str:
        known, name = self.fields["known"], self.fields["name"]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ";"
        every = ", ".join(f"`{k}`" for k in known)
        return f"unknown {self.fields['what']} `{name}`{hint} known: {every}"


class MissingExtra(ConfigError):
    """A library that an extra brings is not installed."""

    def __init__(self, *, what: str, extra: str, pip: str = "") -> None:
        super().__init__(what=what, extra=extra, pip=pip)

    def sentence(self) -> str:
        pip = self.fields["pip"] or f"pip install 'rowmill[{self.fields['extra']}]'"
        return f"{self.fields['what']} is not installed; run `{pip}`"


class BadSource(ConfigError):
    """The input cannot be read."""


class BadOutput(ConfigError):
    """The output cannot be written, or it is the input."""


class BadSink(ConfigError):
    """A vector store cannot be written to as the job wants it; `reason` is the sentence."""


class DuplicateIds(ConfigError):
    """Ids that occur more than once; `reason` names ids and places."""


class RunMismatch(ConfigError):
    """The output holds a run of another identity; `reason` names keys, old and new values."""


class OutputInUse(ConfigError):
    """A live process owns the output; `reason` names it."""


class RowError(RowmillError):
    """This row is bad: it becomes an outcome with `kind` and the sentence."""

    kind: ClassVar[str] = "invalid"


class InvalidRow(RowError):
    """The row's shape or values are wrong."""


class MissingColumn(InvalidRow):
    """The row lacks the column that the job asks with; where every row does, the job is refused."""

    kind = "missing_column"


class Unreadable(RowError):
    """The line is no JSON object, or its columns stand twice in it or are named as ours: those cannot be carried."""

    kind = "unreadable"


class BadMedia(RowError):
    """An image or a piece of audio is broken, too large, or from where nothing may be read; `reason` is the sentence."""

    kind = "bad_media"


class NotFetched(RowError):
    """What a URL names could not be had; `reason` says why."""

    kind = "not_fetched"


class TooLong(RowError):
    """Prompt, or prompt and asked tokens, do not fit the context."""

    kind = "too_long"

    def __init__(
        self,
        *,
        prompt_tokens: int,
        asked_tokens: int,
        limit_tokens: int,
        is_counted: bool = True,
        uncut: str = "",
        way_on: str = CUT_IT,
    ) -> None:
        """A row too long.

        Args:
            is_counted: Whether `prompt_tokens` are all there are, else at least so many.
            uncut: What of it is never cut, where that is why it was not.
            way_on: What else helps than a longer context, where it can be cut.
        """
        super().__init__(
            prompt_tokens=prompt_tokens,
            asked_tokens=asked_tokens,
            limit_tokens=limit_tokens,
            is_counted=is_counted,
            uncut=uncut,
            way_on=way_on,
        )

    def sentence(self) -> str:
        prompt, asked, limit = (
            self.fields[k] for k in ("prompt_tokens", "asked_tokens", "limit_tokens")
        )
        at_least = "" if self.fields["is_counted"] else "at least "
        if asked and prompt < limit:
            return (
                f"{prompt} prompt tokens + {asked} `max_tokens` = {prompt + asked}, limit {limit};"
                ' lower `max_tokens`, or set `validate.too_long = "clamp_max_tokens"`'
            )
        too_many = f"{at_least}{prompt} prompt tokens, limit {limit} with the answer"
        if self.fields["uncut"]:
            return f"{too_many}, and {self.fields['uncut']} are not cut; raise `engine.max_model_len`, or shorten the row"
        return f"{too_many}; raise `engine.max_model_len`, or {self.fields['way_on']}"


class Refused(RowError):
    """The engine said no for good (4xx other than 408, 409, 425, 429)."""

    kind = "refused"


class KilledEngine(RowError):
    """The engine died with this row alone in flight, after it had died with it before."""

    kind = "killed_engine"


class GaveUp(RowError):
    """Retries of a transient failure are used up; `reason` holds the last one."""

    kind = "transient"


class Transient(RowmillError):
    """The same call may work later."""


class RateLimited(Transient):
    """Told to wait; `retry_after_s` is the server's own word, or None."""


class TimedOut(Transient):
    """No answer in time."""


class Disconnected(Transient):
    """The connection broke, or its body was cut."""


class SinkDown(Transient):
    """A vector store does not answer, or not now; `reason` says what it said."""


class Stopped(RowmillError):
    """Whatever is asked now is refused until a person did something: a key, a bill."""

    exit_code = 5


class EngineDied(RowmillError):
    """The engine cannot be started, or dies whatever it is given."""

    exit_code = 3


class NeverReady(EngineDied):
    """The engine was alive but not ready in the time it was given."""

    exit_code = 5


class StorageError(RowmillError):
    """Disk or bucket failed; nothing is swallowed."""

    exit_code = 3

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(path=path, reason=reason)

    def sentence(self) -> str:
        return f"`{self.fields['path']}`: {self.fields['reason']}; run the same command again to resume"


class InputChanged(StorageError):
    """A file of the input is not what it was when the run began; what was read of it since does not count."""

    def __init__(self, *, path: str, reason: str = "") -> None:
        why = "changed while the run was going on; put the old file back"
        super().__init__(path=path, reason=reason or why)


class SinkFailed(RowmillError):
    """A vector store took not all vectors; all of them are on the disk."""

    exit_code = 3

    def __init__(self, *, sink: str, reason: str, way_on: str = "") -> None:
        super().__init__(sink=sink, reason=reason, way_on=way_on)

    def sentence(self) -> str:
        way_on = self.fields["way_on"] or "run the same command again to go on"
        return f"`{self.fields['sink']}`: {self.fields['reason']}; {way_on}"
