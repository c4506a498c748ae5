"""Job -> what of it does not go with its kind, in a sentence.

Promises: one mistake at a time, named by its setting.
Knows nothing of: rows, engines.
"""

from __future__ import annotations

from rowmill.config import Job, SamplingConfig
from rowmill.kinds_config import PAIR_KINDS, TEXT_KINDS, ClassifyConfig, ScoreConfig


def weighs_labels(job: Job) -> bool:
    """Whether a language model weighs labels, so that rows are prompts."""
    return job.kind == "classify" and bool(job.classify.names)


def of_kind(job: Job, is_chat: bool) -> str:
    """What of a job does not go with its kind; empty where all does."""
    reason = _of_other_kinds(job)
    if not reason and job.kind not in TEXT_KINDS:
        reason = _of_texts(job)
    if not reason and weighs_labels(job) and not is_chat:
        reason = _border(job)
    return reason


def _of_other_kinds(job: Job) -> str:
    """Tables that only other kinds have."""
    if job.classify != ClassifyConfig() and job.kind != "classify":
        return f'`[classify]` goes with `kind = "classify"`; `kind` is `{job.kind}`'
    if job.score != ScoreConfig() and job.kind not in PAIR_KINDS:
        return f'`[score]` goes with `kind = "score"` or `"rerank"`; `kind` is `{job.kind}`'
    if job.score.top_n and job.kind != "rerank":
        return '`score.top_n` goes with `kind = "rerank"`: one document has no ranking'
    if job.validate_.too_long == "chunk" and job.kind != "embed":
        return (
            '`validate.too_long = "chunk"` goes with `kind = "embed"`: a prompt has one answer'
        )
    return ""


def _of_texts(job: Job) -> str:
    """Settings of answers that are texts, or of prompts."""
    own = f'`kind = "{job.kind}"`'
    if job.sampling != SamplingConfig(extra=job.sampling.extra):
        return f"`[sampling]` but for `extra` goes with answers that are text; with {own} leave it out"
    if job.validate_.too_long == "clamp_max_tokens":
        chunk = " and `chunk`" if job.kind == "embed" else ""
        return (
            '`validate.too_long = "clamp_max_tokens"` goes with answers that are text;'
            f" allowed with {own} are `error`, `truncate_left`, `truncate_right`{chunk}"
        )
    if job.prompt_jinja and not weighs_labels(job):
        return f"`prompt_jinja` goes with prompts; with {own} write `prompt`"
    if job.kind in PAIR_KINDS and job.prompt:
        return f"`prompt` goes with one text a row; with {own} name columns in `[score]`"
    if job.kind in PAIR_KINDS and job.validate_.too_long == "truncate_left":
        return (
            '`validate.too_long = "truncate_left"` would cut queries;'
            f" allowed with {own} are `error` and `truncate_right`, which cuts documents"
        )
    return ""


def _border(job: Job) -> str:
    """A space before a label belongs to the label: that is how vocabularies have their words."""
    for name, prompt in (("prompt", job.prompt), ("prompt_jinja", job.prompt_jinja)):
        if prompt.endswith(" "):
            return (
                f"`{name}` ends with a space, and labels are encoded by themselves: take it away there,"
                ' and write it before each label in `[classify.texts]`, as `yes = " yes"`'
            )
    return ""
