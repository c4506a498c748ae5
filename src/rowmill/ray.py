"""Batches of a Ray Data pipeline -> the same batches with answers behind them.

Promises: one answer a row, in the batch's own order, with the columns and kinds of failure that a run writes.
Knows nothing of: Ray; a callable class is all that `map_batches` asks for.
Memory: one batch. For a job of its own, `run.executor = "ray"` does more: see `stage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowmill.config import Job
from rowmill.executors.local import schema_text
from rowmill.executors.opening import as_recorded
from rowmill.outcomes import pack
from rowmill.stream import Answering
from rowmill.write.form import answer_form_of
from rowmill.write.outcome_columns import OutcomeColumns
from rowmill.write.results import ROW_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa


class Stage:
    """A callable that answers batches; `stage` makes one for a job."""

    job: dict[str, Any]

    def __init__(self) -> None:
        """Open the engine: once an actor."""
        job = Job.model_validate(self.job)
        self._row_column = job.output.prefix + ROW_COLUMN
        self._answering = Answering(job)
        self._columns = OutcomeColumns(
            job.output.prefix,
            schema_text(job),
            own=answer_form_of(job),
            dimensions=self._answering.dimensions,
        )

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The batch with rowmill's columns behind its own."""
        outcomes = self._answering.outcomes(batch.to_pylist())
        lines = [pack([one]).lines.rstrip(b"\n") for one in outcomes]
        arrays, _ = self._columns.columns([""] * len(lines), lines)
        for field, array in zip(self._columns.schema, arrays, strict=True):
            # Which row of a batch it is tells nobody anything.
            if field.name != self._row_column:
                batch = batch.append_column(field, array)
        return batch

    def close(self) -> None:
        """End the engine; it ends with its process too."""
        self._answering.close()


def stage(job: Job) -> type[Stage]:
    """A class for `Dataset.map_batches` that answers the rows of a dataset with the job's prompt and engine.

        ds.map_batches(rowmill.ray.stage(job), batch_format="pyarrow", batch_size=4096, concurrency=2, num_gpus=1)

    `batch_format` must be `pyarrow`; `num_gpus` is what one engine needs. The job's `source`, `output` and `run` are
    not looked at, except for what ends or restarts an engine. A bad row, or one that the engine refuses, is a row
    with `rowmill_status` = `error`; only an engine that cannot be kept alive fails the batch.

    What it does not promise, and `rowmill run --executor ray` does:

    - nothing is kept: what Ray Data loses with an actor or a node is asked again, batch by batch, and a pipeline
      that dies starts from its beginning unless Ray Data's own checkpoints are on;
    - a row may be asked more than once; in the dataset it stands once, as far as Ray Data promises that;
    - no identity is checked: two pipelines with other prompts may write to one place;
    - ids are not compared between batches, equal rows are asked each, and rows are planned within their batch alone:
      no prefix groups beyond it, no long answers first;
    - each batch waits for its slowest row, so the engine idles at its end: take batches of several times the
      engine's seats;
    - no caps: nothing stops a dataset of which all rows fail.

    Raises:
        ConfigError: when the first batch comes, where the job cannot be used.
    """
    return type("RowmillStage", (Stage,), {"job": as_recorded(job)})
