"""A job -> the station that measures its rows, open.

Promises: what a job's kind needs of tokenizer and template is there, or refused in a sentence.
Knows nothing of: rows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import xxhash

from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.kinds_config import PAIR_KINDS, TEXT_KINDS
from rowmill.measure.chat import ChatTemplate
from rowmill.measure.encode import Encoder
from rowmill.measure.lengths import LengthRule
from rowmill.measure.long_texts import LongTexts
from rowmill.measure.measurer import Measure
from rowmill.measure.pairs import PairEncoder, PairMeasure
from rowmill.media.sight import Sight
from rowmill.media.tokens import audio_tokens, image_tokens
from rowmill.rows import Limits
from rowmill.tokens.labels import encode_labels
from rowmill.tokens.protocol import Tokenizer

_NO_TOKENIZER = (
    "this engine takes token ids, and the model brings no tokenizer; set `engine.tokenizer`"
)


def open_measure(
    job: Job, tokenizer: Tokenizer | None, limits: Limits, *, template_date: str = ""
) -> Measure:
    """Open the station for one job.

    Args:
        job: What is asked.
        tokenizer: The model's; None where an endpoint tokenises unseen.
        limits: What the engine takes, and its context.
        template_date: The day (ISO) a chat template is told, as the run began; empty: today.

    Raises:
        ConfigError: the engine takes token ids and there is no tokenizer, a policy that needs one,
            or a chat template that cannot be read.
    """
    is_wire = limits.takes == "wire"
    if job.kind in PAIR_KINDS:
        return _of_pairs(job, tokenizer, limits)
    is_text = job.kind in TEXT_KINDS
    prefix = job.embed.prefix if job.kind == "embed" else ""
    limit = job.engine.max_model_len or limits.max_model_tokens
    # A text to embed is cut where words end, and what stands around it is kept: see long_texts.py.
    is_one_text = job.kind == "embed" or (job.kind == "classify" and not job.classify.names)
    parts = is_one_text and job.validate_.too_long != "error"
    rule = LengthRule(
        limit=0 if parts else limit,
        policy=job.validate_.too_long,
        fills_context=not is_wire and is_text,
        least=1 if is_text else _label_tokens(job, tokenizer),
    )
    sees = bool(limits.media) and is_text
    model = job.engine.model
    sight = Sight(job.media, image_tokens(model), audio_tokens(model)) if sees else None
    if tokenizer is None:
        return _without_tokenizer(rule, is_wire=is_wire, prefix=prefix, sight=sight)
    day = datetime.fromisoformat(template_date) if template_date else datetime.now(UTC)
    source = _template_source(job, tokenizer)
    template = ChatTemplate(source, tokenizer.named_tokens, day) if source else None
    data_is_text = job.validate_.special_tokens == "as_text"
    return Measure(
        Encoder(
            tokenizer,
            template,
            data_is_text=data_is_text,
            needs_template=not is_wire or rule.policy != "error",
            limit=0 if rule.cuts else rule.limit,
        ),
        rule,
        is_wire=is_wire,
        template_date=day.date().isoformat() if "strftime_now" in source else "",
        identity={
            "tokenizer": tokenizer.digest,
            "template": xxhash.xxh3_128_hexdigest(source.encode()) if source else "",
        },
        prefix=prefix,
        sight=sight,
        long_texts=LongTexts(
            tokenizer,
            limit=limit,
            policy=rule.policy,
            prefix=prefix,
            overlap=job.embed.overlap,
        )
        if parts
        else None,
    )


def _of_pairs(job: Job, tokenizer: Tokenizer | None, limits: Limits) -> PairMeasure:
    is_wire, policy = limits.takes == "wire", job.validate_.too_long
    if tokenizer is None and not is_wire:
        raise ConfigError(reason=_NO_TOKENIZER)
    if is_wire and policy != "error":
        reason = f'`validate.too_long = "{policy}"` cuts token ids, and an endpoint is sent texts; leave it at `error`'
        raise ConfigError(reason=reason)
    identity = {"tokenizer": tokenizer.digest if tokenizer else "", "template": ""}
    encoder = None
    if tokenizer is not None and not is_wire:
        encoder = PairEncoder(
            tokenizer,
            limit=job.engine.max_model_len or limits.max_model_tokens,
            policy=policy,
            data_is_text=job.validate_.special_tokens == "as_text",
        )
    return PairMeasure(encoder, is_wire=is_wire, identity=identity)


def _label_tokens(job: Job, tokenizer: Tokenizer | None) -> int:
    """Tokens that must fit behind a prompt: those of the longest label, where labels are weighed."""
    if tokenizer is None or job.kind != "classify" or not job.classify.names:
        return 0
    return encode_labels(job.classify, tokenizer).longest


def has_template(job: Job, tokenizer: Tokenizer | None) -> bool:
    """True where conversations can be rendered here."""
    return bool(job.engine.chat_template or (tokenizer and tokenizer.chat_template))


def _without_tokenizer(
    rule: LengthRule, *, is_wire: bool, prefix: str, sight: Sight | None
) -> Measure:
    if not is_wire:
        raise ConfigError(reason=_NO_TOKENIZER)
    if rule.policy != "error":
        reason = (
            f'`validate.too_long = "{rule.policy}"` counts tokens;'
            " set `engine.tokenizer` to the model's tokenizer.json, or leave it at `error`"
        )
        raise ConfigError(reason=reason)
    unlimited = msgspec.structs.replace(rule, limit=0)
    identity = {"tokenizer": "", "template": ""}
    return Measure(
        None,
        unlimited,
        is_wire=True,
        template_date="",
        identity=identity,
        prefix=prefix,
        sight=sight,
    )


def _template_source(job: Job, tokenizer: Tokenizer) -> str:
    if not job.engine.chat_template:
        return tokenizer.chat_template
    path = Path(job.engine.chat_template).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        reason = f"`engine.chat_template`: `{path}`: {why}"
        raise ConfigError(reason=reason) from error
