"""`python -m rowmill` as a child process with a time limit, and what it left: codes, words, results."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases import warm
from tests.cases.compare import Record, read_records
from tests.cases.endpoint import Endpoint
from tests.cases.formats import records_of

ROOT = Path(__file__).resolve().parents[2]
INPUTS = Path(__file__).resolve().parent / "inputs"
TINY = ROOT / "tests" / "golden" / "tiny_tokenizer"
LIMIT_S = 120.0
OK, REFUSED, DIED, SOME_FAILED, STOPPED = 0, 2, 3, 4, 5

Arguments = list[str]


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def told(self) -> dict[str, Any]:
        """The object that `--json` wrote."""
        assert self.stdout, self.stderr
        told: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return told


def job(
    source: Path | Sequence[Path],
    out: Path | None,
    *options: str,
    endpoint: Endpoint | None = None,
    sets: Mapping[str, Any] | None = None,
) -> Arguments:
    """Arguments of a job: over HTTP where there is an endpoint, else with the echo engine and the tiny tokenizer."""
    sources = [source] if isinstance(source, Path) else list(source)
    arguments = [*map(str, sources), *(["-o", str(out)] if out else []), *options]
    if endpoint is not None:
        arguments += ["--url", endpoint.url, "--model", "tiny", "--set", "engine.seats=16"]
    elif "--engine" not in options:
        arguments += ["--engine", "echo", "--set", f"engine.tokenizer={TINY}"]
    for key, value in (sets or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        arguments += ["--set", f"{key}={text}"]
    return arguments


def command_line(verb: str, arguments: Sequence[str], before: Sequence[str] = ()) -> list[str]:
    """The whole command, `--json` and all."""
    return [*before, sys.executable, "-m", "rowmill", verb, *arguments, "--json"]


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment with the source under test in it."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **(changes or {})}


def rowmill(
    verb: str,
    arguments: Sequence[str],
    *,
    before: Sequence[str] = (),
    changes: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit_s: float = LIMIT_S,
    as_json: bool = True,
) -> Finished:
    """Run a command to its end.

    Args:
        before: words before the command, such as `setpriv ...`.
        changes: of the environment.
        as_json: with `--json`; else it speaks as to people.
    """
    words = command_line(verb, arguments, before)[: None if as_json else -1]
    given = environment(changes)
    if not before and warm.own(given) == warm_server().environment:
        words = words[words.index("rowmill") + 1 :]
        code, out, err = warm_server().run(words, given, cwd, limit_s)
    else:
        done = subprocess.run(
            words, capture_output=True, check=False, env=given, cwd=cwd, timeout=limit_s
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    stdout, stderr = out.decode(), err.decode()
    assert "Traceback" not in stderr, stderr
    return Finished(code, stdout, stderr)


@functools.cache
def warm_server() -> warm.Server:
    """The process that forks the commands of all tests of this one."""
    return warm.Server(environment())


def run(*args: Any, **kwargs: Any) -> Finished:
    """`rowmill run` of a `job(...)`."""
    return rowmill("run", job(*args, **kwargs))


def start(
    arguments: Sequence[str], log: Path, *, before: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start `rowmill run` in a session of its own; its words go to the file `log`."""
    with log.open("wb") as words:
        return subprocess.Popen(
            command_line("run", arguments, before),
            stdout=words,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )


@contextlib.contextmanager
def paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A started command and all in its group stand still: what must happen while it lives needs no hurry."""
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGCONT)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a started command and all in its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def results(out: Path) -> list[Record]:
    """All records that a finished run published, lines or tables, in order; read strictly."""
    names = [part["name"] for part in json.loads((out / "done.json").read_bytes())["parts"]]
    files = sorted((out / "results").iterdir())
    assert [f"results/{file.name}" for file in files] == names
    return [record for file in files for record in records_of(file)]


def exported(out: Path, target: Path) -> list[Record]:
    """All records that a run has so far, finished or not."""
    assert rowmill("export", [str(out), "-o", str(target)]).code == OK
    return read_records(target)


def check_whole(finished: Finished, out: Path, num_rows: int) -> list[Record]:
    """See that a run kept the contract: one record a row, counts and exit code as the files say.

    Returns:
        The records.
    """
    assert finished.code in (OK, SOME_FAILED), finished.stderr
    records = results(out)
    failed = [record for record in records if record["rowmill_error"] is not None]
    for record in records:
        is_ok = record["rowmill_status"] == "ok"
        assert (
            is_ok == (record["rowmill_error"] is None) == (record["rowmill_error_kind"] is None)
        )
        assert is_ok or "\n" not in record["rowmill_error"]
    places = [record["rowmill_row"] for record in records]
    assert len(set(places)) == len(places) == num_rows
    told = finished.told
    counts = {name: told[name] for name in ("total", "ok", "error", "not_done")}
    assert counts == {
        "total": num_rows,
        "ok": num_rows - len(failed),
        "error": len(failed),
        "not_done": 0,
    }
    assert finished.code == (SOME_FAILED if failed else OK)
    return records


def check_refused(
    finished: Finished, *, endpoint: Endpoint | None = None, hits: int = 0
) -> str:
    """See that a command was refused in words and without a request. Returns: its words."""
    assert finished.code == REFUSED, finished.stderr
    assert finished.stderr.startswith("rowmill: ")
    assert len(finished.stderr.splitlines()) <= 20
    if endpoint is not None:
        assert endpoint.hits == hits
    return finished.stderr


def check_carried(source: Path, out: Path) -> None:
    """See that each result line begins with its source line, byte for byte, where that is an object."""
    lines = [line.strip() for line in source.read_bytes().splitlines() if line.strip()]
    written = b"".join(f.read_bytes() for f in sorted((out / "results").glob("*.jsonl")))
    for line, result in zip(lines, written.splitlines(), strict=True):
        assert result.startswith(line[:-1].rstrip())


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file and folder below `folder`, with what is in the files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }
