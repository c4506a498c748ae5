"""Row -> Request: all thinking about a job is done once, then each row is read by it.

Promises: a row gives one Request or raises one RowError; the rules hold for all rows alike:
with `prompt` or `prompt_jinja` a row is columns; without, it is a batch line where it has `url` and `body`
(and `method` or `custom_id`) and no prompt of its own, else it has one of `messages`, `prompt`, `prompt_token_ids`.
Knows nothing of: files, tokenizers, engines beyond their Limits.
Memory: one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from rowmill.config import Job, SamplingConfig
from rowmill.errors import ConfigError
from rowmill.kinds_config import PAIR_KINDS, TEXT_KINDS
from rowmill.rows import AnyRow, Limits, Request, Wanted
from rowmill.validate.asked import Samplings
from rowmill.validate.column_rows import JinjaRows, TemplateRows
from rowmill.validate.columns import compile_columns
from rowmill.validate.free_rows import FreeRows, free_columns
from rowmill.validate.ids import IdColumns, id_names
from rowmill.validate.jinja_prompt import JinjaPrompt
from rowmill.validate.kinds import of_kind, weighs_labels
from rowmill.validate.media_columns import MediaRows, check_media
from rowmill.validate.media_parts import Sees
from rowmill.validate.once import Once
from rowmill.validate.pair_rows import PairRows
from rowmill.validate.row_orders import RowOrders
from rowmill.validate.rules import Rules
from rowmill.validate.shapes import Way

_TEXT_FIELDS = {"embed": "input", "classify": "input"}
"""Name under which endpoints take a text, where it is no prompt."""


class Recipe(msgspec.Struct, frozen=True):
    """How each row of one job is read."""

    request: Callable[[AnyRow], Request]
    """The row's request; raises RowError."""
    requests: Callable[[Sequence[AnyRow]], list[Request] | None]
    """The requests of many rows where all of them are plain; None where they are to be taken one by one."""
    of_lines: Callable[[Sequence[AnyRow]], list[Request] | None]
    """The same of lines in which a column may stand twice."""
    id_of: Callable[[AnyRow], bytes]
    """JSON text of the row's id alone; empty where it has none, or none that can be read."""
    wanted: Wanted
    """The columns that are looked at; others are merely carried."""
    once: Once | None
    """What else is to be seen of rows that fast lanes may have read: columns that stand twice."""

    def check_once(self, row: AnyRow) -> None:
        """Raises: Unreadable where a column that is used stands twice in the line."""
        if self.once is not None:
            self.once.check(row)

    def all_requests(self, rows: Sequence[AnyRow]) -> tuple[list[Request], bool]:
        """The requests of many rows, and whether that is that: else `check_once` must see each row.

        Raises: RowError, AttributeError where a row gives none, or is none.
        """
        requests = self.requests(rows)
        if requests is not None:
            return requests, True
        requests = self.of_lines(rows)
        if requests is None:
            requests = list(map(self.request, rows))
        return requests, self.once is None or not self.once.may_be_broken(rows, requests)


def compile_recipe(
    job: Job, *, limits: Limits, chat_template: bool, orders: RowOrders | None = None
) -> Recipe:
    """Decide once how rows of this job are read.

    Args:
        job: What is asked.
        limits: What the engine takes and honours.
        chat_template: The model has one, or the endpoint renders by itself.

    Raises:
        ConfigError: settings that contradict each other, or that the engine cannot honour.
    """
    is_prompt = job.kind in TEXT_KINDS or weighs_labels(job)
    may_chat = is_prompt and job.kind != "generate" and chat_template
    is_chat = not job.raw and (job.kind == "chat" or may_chat)
    _refuse_contradictions(
        job, is_chat=is_chat, can_chat=chat_template or limits.takes == "wire"
    )
    has_template = bool(job.prompt or job.prompt_jinja)
    is_wire = limits.takes == "wire"
    wraps_text = is_chat if has_template else is_chat and job.kind == "chat"
    check_media(job, limits, wraps_text=wraps_text)
    way = Way(
        is_wire=is_wire,
        wraps_text=wraps_text,
        system=job.system,
        keeps_tools="tools" in limits.sampling,
        sees=Sees(
            frozenset(limits.media if job.kind in TEXT_KINDS else ()),
            job.media,
            passes_urls=is_wire and job.media.send == "url",
        ),
        text_field=_TEXT_FIELDS.get(job.kind, "prompt"),
        served="" if job.engine.model else limits.served,
    )
    # A text always has the same numbers: as of an answer that is not drawn, one is enough for equal rows.
    plain = SamplingConfig(temperature=0, extra=job.sampling.extra)
    sampling = job.sampling if job.kind in TEXT_KINDS else plain
    rules = Rules(
        way=way,
        samplings=Samplings(sampling, limits),
        ids=id_columns(job),
        prefix=job.output.prefix,
        used=frozenset(),
    )
    return _recipe(job, rules, orders)


def _recipe(job: Job, rules: Rules, orders: RowOrders | None) -> Recipe:
    ids = rules.ids.names

    def using(names: Iterable[str]) -> Rules:
        return msgspec.structs.replace(rules, used=frozenset((*names, *ids)))

    way_in: JinjaRows | TemplateRows | FreeRows | PairRows | MediaRows
    once: Once | None = None
    # Labels and numbers are not drawn: a column that would say how is one as any.
    samples = job.kind in TEXT_KINDS
    own = ("sampling",) if samples else ()
    brings_prompts = samples or weighs_labels(job)
    prompt = job.prompt or ("" if brings_prompts else _column(job.text))
    if job.kind in PAIR_KINDS:
        way_in = PairRows(using(()), job)
        once = Once(way_in.columns, ids)
    elif job.prompt_jinja:
        jinja = JinjaPrompt(job.prompt_jinja)
        way_in = JinjaRows(using((*jinja.columns, *own)), jinja, may_sample=samples)
    elif prompt:
        columns = compile_columns(prompt).columns
        way_in = TemplateRows(
            using((*columns, *own)), prompt, may_sample=samples, orders=orders
        )
        once = Once(columns, ids)
    else:
        fields = ("messages", "prompt_token_ids")
        names = (*free_columns(may_sample=samples), job.messages)
        way_in = FreeRows(using(names), job, may_sample=samples)
        once = Once(("prompt",), ids, others=(job.messages, *fields))
    if job.media.images or job.media.audio:
        media = (*job.media.images, *job.media.audio)
        way_in = MediaRows(using((*way_in.used, *media)), way_in, job.media)
    quick = (TemplateRows, FreeRows)
    wanted = Wanted(needed=way_in.needed, used=way_in.used.union(ids), prefix=job.output.prefix)
    return Recipe(
        request=way_in,
        requests=way_in.requests if isinstance(way_in, quick) else _one_by_one,
        of_lines=way_in.of_lines if isinstance(way_in, quick) else _one_by_one,
        id_of=rules.ids.of,
        wanted=wanted,
        once=once,
    )


def _column(name: str) -> str:
    """A template that is one column."""
    if "{" in name or "}" in name:
        reason = f"`text` is `{name}`, expected a column's name; a text made of several columns is a `prompt`"
        raise ConfigError(reason=reason)
    return f"{{{name}}}"


def _one_by_one(rows: Sequence[AnyRow]) -> None:
    """No window of rows is known to be plain."""
    del rows


def id_columns(job: Job) -> IdColumns:
    """Where the rows of a job have their ids."""
    return IdColumns(id_names(job.validate_.id_column))


def validate(row: AnyRow, recipe: Recipe) -> Request:
    """The request that a row makes.

    Raises:
        Unreadable: the line is no JSON object, or holds a column twice.
        InvalidRow: it lacks something, or holds something wrong.
    """
    request = recipe.request(row)
    recipe.check_once(row)
    return request


def _refuse_contradictions(job: Job, *, is_chat: bool, can_chat: bool) -> None:
    reason = _contradiction(job, is_chat=is_chat, can_chat=can_chat) or of_kind(job, is_chat)
    if reason:
        raise ConfigError(reason=reason)


def _contradiction(job: Job, *, is_chat: bool, can_chat: bool) -> str:
    """Settings that exclude each other; empty where none do."""
    reason = ""
    if job.raw and job.kind == "chat":
        reason = '`raw = true` and `kind = "chat"` exclude each other; keep one'
    elif job.kind == "chat" and not can_chat:
        reason = '`kind = "chat"`: the model has no chat template; set `engine.chat_template`'
    elif {'"', "\\"} & set(
        job.validate_.id_column
    ) or not job.validate_.id_column.isprintable():
        reason = "`validate.id_column` holds a quote, a backslash or a control character, expected a plain name"
    elif job.messages in ("prompt", "prompt_token_ids"):
        reason = (
            f"`messages` is `{job.messages}`, expected another column: that one holds prompts"
        )
    elif job.system and not is_chat:
        reason = "`system` goes with chat; this job is plain completion: put it into `prompt`"
    elif job.system and job.kind != "chat" and not (job.prompt or job.prompt_jinja):
        reason = '`system` needs `prompt`, `prompt_jinja` or `kind = "chat"`: it goes before the user message they make'
    return reason
