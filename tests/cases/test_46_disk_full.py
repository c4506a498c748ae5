"""Case 46: a full disk stops the run in words; with room again it goes on from what it had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import (
    DIED,
    INPUTS,
    OK,
    Finished,
    check_whole,
    exported,
    job,
    rowmill,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.small_disk import remount, small_disk

EXPECTED = read_records(INPUTS / "46" / "expected.jsonl")
NO_SPACE = "No space left on device"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 rows with 10 KB each to carry: 4 MB of results."""
    file = tmp_path_factory.mktemp("in") / "input.jsonl"
    blob = "0123456789abcdef" * 640
    rows = ({"id": f"d{i:03d}", "prompt": f"d {i}", "blob": blob} for i in range(400))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def check_died(finished: Finished, out: Path, reason: str) -> None:
    """See that a run ended as failed, in few words, with nothing torn under a final name."""
    assert finished.code == DIED, finished.stderr
    assert str(out) in finished.stderr
    assert reason in finished.stderr
    assert len(finished.stderr.splitlines()) <= 20
    assert not (out / "done.json").exists()
    for part in (out / "results").glob("*.jsonl"):
        read_records(part)


def test_results_that_do_not_fit_end_the_run_and_no_row_is_asked_again(
    tmp_path: Path, serve: Serve, source: Path
) -> None:
    endpoint = serve()
    with small_disk(tmp_path / "small", size="2m") as disk:
        arguments = job(source, disk / "out", endpoint=endpoint)

        check_died(rowmill("run", arguments), disk / "out", NO_SPACE)

        status = rowmill("status", [str(disk / "out")]).told
        assert status["state"] != "finished"
        assert status["ok"] == 400
        remount(disk, "size=64m")
        finished = rowmill("run", arguments)
        records = check_whole(finished, disk / "out", 400)
        assert finished.code == OK
        assert differences(EXPECTED, records) == []
        assert endpoint.hits == 400


@pytest.mark.slow
def test_outcomes_that_do_not_fit_stop_the_asking(
    tmp_path: Path, serve: Serve, source: Path
) -> None:
    endpoint = serve(delay_s=0.1)
    with small_disk(tmp_path / "small", size="200k") as disk:
        out = disk / "out"
        arguments = job(source, out, endpoint=endpoint, sets={"sampling.n": 20})

        check_died(rowmill("run", arguments), out, NO_SPACE)

        hits = endpoint.hits
        assert hits < 400
        remount(disk, "size=64m")
        kept = len(exported(out, tmp_path / "export.jsonl"))
        assert 0 < kept <= hits <= kept + 4 * 16
        finished = rowmill("run", arguments)
        records = check_whole(finished, out, 400)
        assert differences(EXPECTED, records) == []
        assert endpoint.hits == hits + 400 - kept


def test_a_file_size_limit_ends_the_run_in_words(
    tmp_path: Path, serve: Serve, source: Path
) -> None:
    endpoint, out = serve(), tmp_path / "out"
    arguments = job(source, out, endpoint=endpoint)
    limit = ["bash", "-c", 'ulimit -f 1024; exec "$@"', "limited"]

    check_died(rowmill("run", arguments, before=limit), out, "File too large")

    finished = rowmill("run", arguments)
    assert differences(EXPECTED, check_whole(finished, out, 400)) == []
    assert endpoint.hits == 400


@pytest.mark.slow
def test_a_full_folder_for_temporary_files_does_no_harm(
    tmp_path: Path, serve: Serve, source: Path
) -> None:
    out = tmp_path / "out"
    with small_disk(tmp_path / "small", size="16k") as disk:
        with pytest.raises(OSError, match="space"):
            (disk / "filler").write_bytes(bytes(2**20))
        finished = rowmill(
            "run", job(source, out, endpoint=serve()), changes={"TMPDIR": str(disk)}
        )

    assert differences(EXPECTED, check_whole(finished, out, 400)) == []
