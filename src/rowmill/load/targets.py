"""`[sink]` + a run -> an open store, and how the run's rows lie in it.

Promises: a store of another shape is refused before a row is asked, in one sentence.
Knows nothing of: commits.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill import registry
from rowmill.config import Job
from rowmill.errors import BadSink, ConfigError, SinkDown
from rowmill.sink_address import parse_sink
from rowmill.sink_config import SinkConfig
from rowmill.validate.ids import id_names
from rowmill.write.keyed.points import Choice, PointMaker
from rowmill.write.keyed.protocol import KeyedSink
from rowmill.write.keyed.wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa


def open_target(sink: SinkConfig, prefix: str) -> KeyedSink:
    """Connect to the store of a job.

    Raises: UnknownName, BadSink, MissingExtra, SinkDown.
    """
    address = parse_sink(sink.to)
    module: Any = registry.load("sinks", address.store, what="sink")
    found: KeyedSink = module.open(address, wanted(sink, prefix))
    limit = sink.max_text_bytes
    if limit is not None:
        most = found.holds.text_bytes
        least = limit if most is None else min(limit, most)
        found.holds = msgspec.structs.replace(found.holds, text_bytes=least)
    return found


def wanted(sink: SinkConfig, prefix: str) -> Wanted:
    """How vectors are to lie in the store."""
    return Wanted(sink.metric, f"{prefix}key", f"{prefix}chunk", sink.vector)


def check_job(job: Job) -> None:
    """Refuse a sink in a job without vectors. Raises: ConfigError."""
    if job.sink.to and job.kind != "embed":
        reason = f"`sink` takes vectors, and jobs of kind `{job.kind}` make none; set `kind` to `embed`, or leave `sink` out"
        raise ConfigError(reason=reason)


def check_target(
    sink: SinkConfig, prefix: str, *, choice: Choice, schema: pa.Schema, dimensions: int
) -> None:
    """See that the store takes such rows.

    Args:
        dimensions: of the job's vectors; 0 where they are not known yet.

    Raises: ConfigError, SinkDown.
    """
    with contextlib.closing(open_target(sink, prefix)) as target:
        table = target.examine()
        length = dimensions or (table.dimensions if table else 0)
        if table and length:
            maker = PointMaker(schema, choice, wanted(sink, prefix), target.holds, length)
            target.prepare(maker.schema, length)


def check_dimensions(sink: SinkConfig, prefix: str, dimensions: int) -> None:
    """See that the store's vectors are as long as the engine's. Raises: ConfigError, SinkDown."""
    target = open_target(sink, prefix)
    with contextlib.closing(target):
        table = target.examine()
    if table is not None and dimensions and table.dimensions != dimensions:
        reason = (
            f"`{sink.to}`: its vectors have {table.dimensions} dimensions, the model's {dimensions};"
            " name another table, or another model"
        )
        raise BadSink(reason=reason)


def not_there(sink: SinkConfig, error: SinkDown) -> BadSink:
    """What is said of a store that does not answer before anything is done."""
    return BadSink(reason=f"`{sink.to}`: the store does not answer: {error}")


def choice_of(job: Job, schema: pa.Schema) -> Choice:
    """Which columns of the run go to the store.

    Args:
        schema: of the carried columns.

    Raises: BadSink for a column that is not there, or two of one name.
    """
    sink, prefix, names = job.sink, job.output.prefix, schema.names
    columns = sink.columns if sink.columns is not None else tuple(names)
    for name in (*columns, *([sink.key] if sink.key else [])):
        if name not in names:
            raise BadSink(reason=_no_column(name, names))
    if sink.vector in columns:
        reason = (
            f"the input has a column `{sink.vector}` as well; name the vector otherwise in `sink.vector`,"
            " or leave the column out of `sink.columns`"
        )
        raise BadSink(reason=reason)
    keys: tuple[str, ...] = (sink.key,) if sink.key else ()
    if not keys and job.validate_.duplicate_ids == "error":
        keys = tuple(name for name in id_names(job.validate_.id_column) if name in names)
    spans = (f"{prefix}start", f"{prefix}stop")
    return Choice(
        columns=columns,
        keys=keys,
        cuts=sink.long_text == "truncate",
        spans=spans if job.validate_.too_long == "chunk" else None,
    )


def place_of(job: Job) -> str:
    """All that tells one place for a run's vectors from another."""
    sink, validate = job.sink, job.validate_
    return "\n".join(
        (sink.to, sink.vector, sink.key, validate.id_column, validate.duplicate_ids)
    )


def refusing(job: Job) -> str:
    """The settings that decide which texts are refused: with others, what was refused is looked at again."""
    return f"{job.sink.max_text_bytes} {job.sink.long_text}"


def _no_column(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"`sink` names a column `{name}` that the input does not have{hint}"
