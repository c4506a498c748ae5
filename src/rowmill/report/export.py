"""Output -> one file with the results so far, of a finished or an unfinished run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rowmill.errors import ConfigError
from rowmill.publish import joined_rows
from rowmill.report.run import View, open_view
from rowmill.storage import LocalStorage
from rowmill.storage.drafts import open_draft


class Exported(msgspec.Struct, frozen=True):
    """What was written."""

    rows: int
    not_done: int
    """Rows without an outcome, left out."""


def export(output: str, target: str) -> Exported:
    """Write every row that has an outcome, in input order, as JSON Lines.

    Raises:
        ConfigError: there is no run, or the target cannot be such a file.
        StorageError: it cannot be written.
    """
    view = open_view(output)
    path = Path(target)
    if path.suffix not in (".jsonl", ".ndjson"):
        reason = (
            f"`{target}`: this version exports JSON Lines; name a file that ends in `.jsonl`"
        )
        raise ConfigError(reason=reason)
    if path.is_dir() or _is_input(view, path):
        reason = f"`{target}` is a folder or an input of the run; name another file"
        raise ConfigError(reason=reason)
    draft = open_draft(LocalStorage(str(path.parent)), path.name)
    rows = 0
    try:
        for lines in joined_rows(view.cut, view.task_lines, view.record.prefix):
            rows += len(lines)
            draft.write(b"".join(lines))
        draft.finish()
    except BaseException:
        draft.abandon()
        raise
    counts = view.counts()
    return Exported(rows=rows, not_done=view.cut.num_lines - counts.done)


def _is_input(view: View, path: Path) -> bool:
    return path.exists() and any(
        Path(file.path).exists() and path.samefile(file.path) for file in view.record.files
    )
