"""Output -> one file with the results so far, of a finished or an unfinished run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.join.lines import joined_rows
from rowmill.join.parting import column_limits
from rowmill.outcomes import dimensions_of
from rowmill.publish import write_lines, write_table
from rowmill.record import known_length
from rowmill.report.run import View, open_view
from rowmill.report.status import total_rows
from rowmill.storage import Storage, place_of
from rowmill.storage.addresses import is_remote, parse_address
from rowmill.write.answer_form import AnswerForm
from rowmill.write.form import SUFFIXES, Form, answer_form_of, form_of_name


class Exported(msgspec.Struct, frozen=True):
    """What was written."""

    rows: int
    not_done: int
    """Rows without an outcome, left out."""


def export(output: str, target: str) -> Exported:
    """Write every row that has an outcome, in input order; the suffix of the target says as what.

    Raises:
        ConfigError: there is no run, its input is another, or the target cannot be such a file.
        StorageError: it cannot be written.
    """
    view = open_view(output)
    place, name = place_of(target)
    form = form_of_name(name)
    if form is None:
        known = ", ".join(f"`{suffix}`" for suffix in SUFFIXES)
        reason = (
            f"`{target}`: its suffix says no format; name a file that ends in one of {known},"
            " text also with `.gz` or `.zst` behind it"
        )
        raise ConfigError(reason=reason)
    check_target(view, output, target)
    view.check_input()
    rows = _write(view, place, name, form)
    return Exported(rows=rows, not_done=total_rows(view) - view.counts().done)


def _write(view: View, storage: Storage, name: str, form: Form) -> int:
    prefix = view.record.prefix
    own = _own(view)
    id_column = view.record.identity.get("validate.id_column") or msgspec.UNSET
    form = msgspec.structs.replace(form, own=own, id_column=id_column)
    if form.is_lines:
        lines = joined_rows(view.cut, view.range_lines(), prefix, form)
        return write_lines(storage, name, lines, form).num_rows
    from rowmill.join.columns import carried_columns
    from rowmill.join.tables import TableJoiner, batches_of_rows

    schema = view.record.job.get("sampling", {}).get("schema")
    answers = msgspec.json.encode(schema).decode() if schema else ""
    columns = carried_columns(
        column_limits(view.cut),
        form,
        prefix,
        answers=answers,
        dimensions=_dimensions(view) if form.has_vectors else 0,
    )
    joiner = TableJoiner(columns, prefix, form)
    batches = batches_of_rows(joiner, view.cut, view.range_lines())
    return write_table(storage, name, joiner.schema, batches, form).num_rows


def _own(view: View) -> AnswerForm | None:
    """How the run's answers are written where they are no text; else None."""
    tree = view.record.job
    names = ("kind", "validate", "output", "classify")
    said = {name: tree[name] for name in names if name in tree}
    return answer_form_of(Job.model_validate(said))


def _dimensions(view: View) -> int:
    """Numbers in each of the run's vectors; 0 where it has none yet."""
    if known := known_length(view.storage):
        return known
    parts = (part for task in range(view.cut.num_tasks) for part in view.task_outcomes(task))
    return next(filter(None, map(dimensions_of, parts)), 0)


def check_target(view: View, output: str, target: str) -> None:
    """See that a file made of a run takes the place of nothing that is needed.

    Raises:
        ConfigError: it would be a folder, an input of the run, or one of its own files.
    """
    if _is_input(view, target):
        reason = f"`{target}` is a folder or an input of the run; name another file"
        raise ConfigError(reason=reason)
    if _is_of_the_run(view, output, target):
        reason = f"`{target}` lies among the run's own files; name a file elsewhere"
        raise ConfigError(reason=reason)


def _is_input(view: View, target: str) -> bool:
    """Whether a file is one that the run reads, or a folder."""
    if is_remote(target):
        return parse_address(target).url in {file.path for file in view.record.files}
    path = Path(target)
    return path.is_dir() or (
        path.exists()
        and any(
            Path(file.path).exists() and path.samefile(file.path) for file in view.record.files
        )
    )


def _is_of_the_run(view: View, output: str, target: str) -> bool:
    """Whether a file there would be one of the run's, or stand among its results."""
    if is_remote(target) or is_remote(output):
        whole = f"{view.storage.url.rstrip('/')}/"
        url = parse_address(target).url if is_remote(target) else ""
        return url.startswith(whole) and rundir.is_ours(url.removeprefix(whole))
    root, place = (Path(os.path.realpath(one)) for one in (output, target))
    return place.is_relative_to(root) and rundir.is_ours(place.relative_to(root).as_posix())
