"""A report of a run in a bucket: read from there, and put there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases.command import SOME_FAILED, rowmill
from tests.cases.on_s3 import Prefix, new_prefix, s3_job
from tests.report.runs import HOSTILE_ID, write_rows
from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.slow


@pytest.fixture
def out(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Prefix:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return new_prefix(s3_server)


def test_it_is_read_from_a_bucket_and_lies_there(out: Prefix, tmp_path: Path) -> None:
    source = write_rows(tmp_path, 3000)
    sets = {"engine.delay_s": 0.5, "engine.seats": 300}
    finished = rowmill("run", s3_job(source, out, "--prompt", "Say: {text}", sets=sets))
    assert finished.code == SOME_FAILED, finished.stderr

    told = rowmill("report", [out.url])

    assert told.code == 0, told.stderr
    assert f"report written to {out.url}/report.html" in told.stderr
    text = re.sub(r"<[^>]*>|\s+", " ", out.get("report.html").decode())
    text = re.sub(r" +", " ", text)
    assert "rows done 3,000 of 3,000" in text
    assert HOSTILE_ID.replace("<", "&lt;").replace(">", "&gt;") in text
    assert "Rows answered" in text
    assert "the input is not what the run began with" not in text
