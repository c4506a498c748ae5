"""`rowmill run` with the real vLLM frozen, without memory, told to end, and unable to start: nobody lends a hand."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.engines.orphans import members, strays
from tests.engines.test_vllm_run import RUNS, Run, chat, long_rows, schema, titles

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("vllm")

CORE = "VLLM::EngineCore"
SEATS = 32
GRACE_S = 30.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.hf_folders import random_folder

    return random_folder(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Neither of a test that fails, nor of one that passes: no engine outlives its rowmill."""
    before = set(strays())
    yield
    for run in RUNS:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()
    RUNS.clear()
    assert set(strays()) <= before


def check_whole(run: Run, rows: int, *, other: str = "") -> None:
    """Every row is there once and answered, to the length asked for but for one."""
    found = run.results()
    assert {f"r{i}" for i in range(rows)} == set(found)
    assert {"ok"} == {row["rowmill_status"] for row in found.values()}
    lengths = {row["rowmill_output_tokens"] for name, row in found.items() if name != other}
    assert {200} == lengths


@pytest.fixture(params=["apart", "inside"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether vLLM's engine has a process of its own, as on a GPU, or the adapter's, as on a few cores."""
    is_apart = request.param == "apart"
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", str(int(is_apart)))
    return str(request.param)


def computing(first: int, where: str) -> int:
    """The process that vLLM's engine computes in."""
    return titles(first)[CORE] if where == "apart" else first


def test_frozen_engine_is_ended_and_the_job_ends_whole(
    tmp_path: Path, model: Path, where: str
) -> None:
    run = Run(tmp_path, model, long_rows(300), "[run]\nstall_s = 15\n")
    run.start()
    run.until(lambda: run.answered() > 10)
    first = run.engine_pid()
    os.kill(computing(first, where), signal.SIGSTOP)

    assert 0 == run.finish(), run.words()[-2000:]
    check_whole(run, 300)
    assert "stood still" in run.words()
    assert [] == list(members(first))


def test_engine_without_memory_comes_down_and_the_job_ends_whole(
    tmp_path: Path, model: Path, where: str
) -> None:
    """No page more than it has now: whatever it asks for next fails, as on a machine that is full.

    vLLM takes at its start what its steps need; a grammar is compiled when a row with it comes.
    """
    words = [f"{i} " + "x" * 60 for i in range(4_000)]
    large = schema(json.dumps({"enum": words}))
    rows = long_rows(300)
    rows[150] = chat("r150", "Row 150.", response_format=large, max_tokens=20)
    run = Run(tmp_path, model, rows, '[plan]\norder = "file"\n[run]\nstall_s = 30\n')
    run.start()
    run.until(lambda: run.answered() > 10)
    first = run.engine_pid()
    resource.prlimit(computing(first, where), resource.RLIMIT_DATA, (2**20, 2**20))

    assert 0 == run.finish(), run.words()[-2000:]
    check_whole(run, 300, other="r150")
    assert "`engine.seats` = 16" in run.words()
    kept = json.loads((run.out / "plan/engine-steps.json").read_bytes())
    assert ["seats"] == [step["setting"] for step in kept]
    assert [] == list(members(first))


def test_sigterm_ends_within_its_grace_and_only_rows_in_seats_repeat(
    tmp_path: Path, model: Path
) -> None:
    run = Run(tmp_path, model, long_rows(600), "[run]\ndrain_s = 20\n")
    process = run.start()
    run.until(lambda: run.answered() > SEATS)
    pgid = run.engine_pid()
    process.send_signal(signal.SIGTERM)
    asked_at = time.monotonic()

    assert 143 == process.wait(GRACE_S)
    assert time.monotonic() - asked_at < GRACE_S
    assert [] == list(members(pgid))
    before = run.answered()
    run.process = None
    run.start()

    assert 0 == run.finish(), run.words()[-2000:]
    check_whole(run, 600)
    asked = json.loads((run.out / "done.json").read_bytes())
    assert 600 == asked["counts"]["ok"]
    assert before >= SEATS


STRANGE = "Foo9ForCausalLM"
OWN_CODE = """
from pathlib import Path
Path(r"{mark}").write_text("run")
class Foo: pass
"""


def changed(model: Path, folder: Path, **fields: Any) -> Path:
    """A copy of the model with other fields in its config.json."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    return folder


def words_of_failed_start(tmp_path: Path, model: Path) -> str:
    run = Run(tmp_path, model, long_rows(3), "")
    run.start()

    assert run.finish() in (2, 3)
    assert "Traceback" not in run.words()
    assert [] == list(run.out.glob("results/*"))
    return run.words()


def test_start_that_fails_is_told_in_vllm_s_words_with_what_helps(
    tmp_path: Path, model: Path
) -> None:
    strange = changed(model, tmp_path / "strange", architectures=[STRANGE])
    words = words_of_failed_start(tmp_path, strange)

    assert STRANGE in words
    assert "install a newer one" in words


def test_code_that_comes_with_a_model_is_not_run_unasked(tmp_path: Path, model: Path) -> None:
    auto = {"AutoConfig": "configuration_foo.Foo", "AutoModelForCausalLM": "modeling_foo.Foo"}
    strange = changed(
        model, tmp_path / "own", model_type="foo9", architectures=[STRANGE], auto_map=auto
    )
    mark = tmp_path / "mark"
    for name in ("configuration_foo.py", "modeling_foo.py"):
        (strange / name).write_text(OWN_CODE.format(mark=mark))
    words = words_of_failed_start(tmp_path, strange)

    assert "`engine.trust_remote_code = true`" in words
    assert not mark.exists()


def test_model_without_weights_is_told(tmp_path: Path, model: Path) -> None:
    empty = changed(model, tmp_path / "empty")
    for file in empty.glob("*.safetensors*"):
        file.unlink()

    assert "no weights as safetensors" in words_of_failed_start(tmp_path, empty)
