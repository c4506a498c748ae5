"""Credentials of a store are in the environment and nowhere else: planted, then looked for in everything written."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from tests.cases.command import (
    DIED,
    OK,
    REFUSED,
    Finished,
    command_line,
    environment,
    rowmill,
)
from tests.cases.on_s3 import Prefix, new_prefix
from tests.servers.faults import faulty, first
from tests.servers.s3_server import KEY_ID, SECRET, S3Server

pytestmark = pytest.mark.slow
WRONG = "planted-wrong-7d1e"
TOKEN = "planted-session-token-55aa"
PLANTED = (SECRET, KEY_ID, WRONG, TOKEN)
ECHO = ["--engine", "echo", "--set", "engine.tokenizer=bytes", "--set", "run.task_rows=100"]


@pytest.fixture
def out(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prefix:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    prefix = new_prefix(s3_server)
    lines = b"".join(b'{"id": %d, "prompt": "say %d"}\n' % (i, i) for i in range(300))
    prefix.put("in/a.jsonl", lines)
    prefix.put("in/b.jsonl.gz", gzip.compress(lines.replace(b'"id": ', b'"id": 1000')))
    return prefix


def test_planted_credentials_are_in_nothing_that_is_written(
    out: Prefix, tmp_path: Path, s3_server: S3Server
) -> None:
    source, local = f"{out.url}/in", str(tmp_path / "local")
    said = [
        rowmill("run", [source, "-o", out.below("run").url, *ECHO]),
        rowmill("run", [source, "-o", local, *ECHO]),
        rowmill("export", [out.below("run").url, "-o", str(tmp_path / "e.jsonl")]),
        rowmill("status", [out.below("run").url]),
        rowmill("trace", [out.below("run").url, "a.jsonl:7"]),
        rowmill("check", [source]),
    ]
    assert [one.code for one in said] == [OK] * len(said), [one.stderr for one in said]

    (tmp_path / "words").write_text("".join(one.stdout + one.stderr for one in said))
    everything = out.below("run").copied(tmp_path / "copied")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert any(path.name == "run.json" for path in everything.iterdir())
    assert len(files) > 30
    assert [str(p) for p in files if any(s.encode() in p.read_bytes() for s in PLANTED)] == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("verb", ["run", "check"])
@pytest.mark.parametrize(
    "changes",
    [
        {"AWS_SECRET_ACCESS_KEY": WRONG},
        {"AWS_ACCESS_KEY_ID": WRONG},
        {"AWS_SESSION_TOKEN": TOKEN},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        {"AWS_ENDPOINT_URL": f"http://user:{WRONG}@127.0.0.1:9"},
        {"AWS_ENDPOINT_URL": f"nonsense://{WRONG}"},
        {"AWS_REGION": "\n"},
        {"AWS_SECRET_ACCESS_KEY": f"{WRONG}\n"},
    ],
    ids=lambda changes: "{}={!r}".format(*next(iter(changes.items()))),
)
def test_no_refusal_tells_them_not_even_with_its_traceback(
    out: Prefix, changes: dict[str, str], verb: str
) -> None:
    arguments = [f"{out.url}/in", "-o", out.below("run").url, *ECHO, "--debug"]
    changes = {"ROWMILL_STORE_RETRY_S": "1", **changes}

    finished = with_traceback(verb, arguments, changes)

    assert finished.code in (OK, REFUSED)
    assert [secret for secret in PLANTED if secret in finished.stdout + finished.stderr] == []


def test_a_store_that_fails_in_the_middle_tells_nothing_of_them(
    out: Prefix, s3_server: S3Server
) -> None:
    with faulty(s3_server, first(10**6, "error", "PUT")) as faults:
        arguments = [f"{out.url}/in", "-o", out.below("run").url, *ECHO, "--debug"]
        changes = {**faults.server.environment, "ROWMILL_STORE_RETRY_S": "1"}

        finished = with_traceback("run", arguments, changes)

    assert finished.code in (REFUSED, DIED)
    assert [secret for secret in PLANTED if secret in finished.stdout + finished.stderr] == []


def with_traceback(verb: str, arguments: list[str], changes: dict[str, str]) -> Finished:
    """As `rowmill`, which lets no traceback pass."""
    done = subprocess.run(
        command_line(verb, arguments),
        capture_output=True,
        check=False,
        env=environment(changes),
        text=True,
        timeout=120,
    )
    return Finished(done.returncode, done.stdout, done.stderr)
