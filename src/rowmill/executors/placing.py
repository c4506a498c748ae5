"""Job and output -> nothing, or a refusal: an output that is the input, lies in it, or holds something else.

Promises: nothing is changed anywhere.
Knows nothing of: what is in files.
Memory: names at the top of an output.
"""

from __future__ import annotations

import os
from pathlib import Path

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import BadOutput, BadSource, StorageError
from rowmill.read.buckets import fixed_root, reaches
from rowmill.storage import LocalStorage, ObjectStorage, Storage
from rowmill.storage.addresses import is_remote, parse_address


def check_places(job: Job, storage: Storage) -> None:
    """Refuse an output that is the input, lies in it, or holds something else.

    Raises:
        BadOutput: names the path and the reason.
    """
    if isinstance(storage, ObjectStorage):
        _check_prefix(storage)
        for given in job.source:
            _check_prefixes_apart(storage.url, given)
        return
    assert isinstance(storage, LocalStorage)
    root = storage.root
    try:
        _check_target(job.output.path, root)
        for given in job.source:
            _check_apart(job.output.path, root, given)
    except OSError as error:
        reason = f"output `{_short(job.output.path)}` cannot be used: {error.strerror}; name another folder"
        raise BadOutput(reason=reason) from error


def _check_target(shown: str, root: Path) -> None:
    if root.exists() and not root.is_dir():
        reason = f"output `{shown}` is a file; name a folder"
        raise BadOutput(reason=reason)
    if not root.is_dir() or (root / "run.json").exists():
        return
    names = sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()
    )
    others = [
        n for n in names if not (rundir.is_ours(n) or n.rpartition("/")[2].startswith("."))
    ]
    if others:
        reason = (
            f"output `{shown}` holds other files (`{others[0]}`) and no run; name a new folder"
        )
        raise BadOutput(reason=reason)


def _check_apart(shown: str, root: Path, given: str) -> None:
    if given == "-" or is_remote(given):
        return
    source = Path(given.split("*", 1)[0] or ".") if "*" in given else Path(given)
    if (source / "run.json").exists() and (source / "commits").exists():
        reason = f"`{given}` is the output of a run; give its `results` folder, or a file that `rowmill export` made"
        raise BadSource(reason=reason)
    # Unlike `Path.resolve`, a ring of links is no error here but where it is opened.
    source, target = Path(os.path.realpath(source)), Path(os.path.realpath(root))
    if source.is_dir() and (target == source or source in target.parents):
        reason = (
            f"output `{shown}` lies in the input folder `{given}`; name a folder outside it"
        )
        raise BadOutput(reason=reason)
    if target == source or target in source.parents:
        reason = f"output `{shown}` holds the input `{given}`; name another folder"
        raise BadOutput(reason=reason)


def _short(path: str) -> str:
    return path if len(path) <= 80 else f"{path[:60]}... ({len(path)} characters)"


def _check_prefix(storage: ObjectStorage) -> None:
    try:
        names = storage.top_names()
    except StorageError as error:
        reason = f"output `{storage.url}` cannot be used: {error.fields['reason']}"
        raise BadOutput(reason=reason) from error
    others = [] if rundir.RUN in names else [n for n in names if not rundir.is_ours(n)]
    if others:
        reason = (
            f"output `{storage.url}` holds other objects (`{others[0]}`) and no run;"
            " name a new prefix"
        )
        raise BadOutput(reason=reason)


def _check_prefixes_apart(output: str, given: str) -> None:
    if not (is_remote(given) and is_remote(output)):
        return
    whole = f"{parse_address(output).url.rstrip('/')}/"
    source = f"{fixed_root(given)}/"
    if source.startswith(whole):
        reason = f"output `{output}` holds the input `{given}`; name another prefix"
        raise BadOutput(reason=reason)
    if reaches(given, output):
        reason = f"output `{output}` lies in the input `{given}`; name a prefix outside it"
        raise BadOutput(reason=reason)
