"""`rowmill run` with the real vLLM: rows of every kind, and its processes killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.engines.orphans import members

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("vllm")

START_S = 300.0
GONE_S = 10.0
FINISHED_WITH_FAILED_ROWS = 4
ENGINE = """
[engine]
name = "vllm"
model = "{model}"
dtype = "{dtype}"
enforce_eager = true
cpu_kv_gib = 1
max_model_len = 512
{more}
[sampling]
temperature = 0
"""
SEATS = "seats = 32\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.hf_folders import random_folder

    return random_folder(tmp_path_factory.mktemp("models") / "random")


RUNS: list[Run] = []


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """A test that fails leaves no process of its own."""
    yield
    for run in RUNS:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()
    RUNS.clear()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's engine in a process of its own, as it is on a GPU."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")


class Run:
    """A job in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        rows: list[dict[str, Any]],
        more: str,
        *,
        engine: str = "",
        dtype: str = "float32",
    ) -> None:
        self.out = folder / "out"
        self._log = folder / "log"
        self._job = folder / "job.toml"
        source = folder / "rows.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        head = f'source = "{source}"\noutput = "{self.out}"\n'
        self._job.write_text(
            head + ENGINE.format(model=model, dtype=dtype, more=engine or SEATS) + more, "utf-8"
        )
        self.process: subprocess.Popen[bytes] | None = None
        RUNS.append(self)

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rowmill", "run", str(self._job)], stdout=log, stderr=log
            )
        return self.process

    def finish(self) -> int:
        process = self.process or self.start()
        return process.wait(START_S * 2)

    def words(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def results(self) -> dict[str, dict[str, Any]]:
        lines = [
            json.loads(line)
            for part in sorted((self.out / "results").glob("part-*.jsonl"))
            for line in part.read_text("utf-8").splitlines()
        ]
        return {row["id"]: row for row in lines}

    def answered(self) -> int:
        return sum(
            file.read_bytes().count(b"\n") for file in (self.out / "segments").rglob("*.jsonl")
        )

    def engine_pid(self) -> int:
        """Process id and group of the engine's child; 0 where none is written down."""
        for file in (self.out / "engines").glob("*.json"):
            return int(json.loads(file.read_bytes())["pid"])
        return 0

    def until(self, is_so: Callable[[], bool], seconds: float = START_S) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, self.words()[-2000:]
            assert self.process is None or self.process.poll() is None, self.words()[-2000:]
            time.sleep(0.05)


def titles(pgid: int) -> dict[str, int]:
    """Members of a process group by their titles."""
    found = {}
    for pid in members(pgid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found[line.split(b"\0")[0].decode("utf-8", "replace").strip()] = pid
    return found


def threads(pid: int) -> list[Path]:
    """Of a process that nobody has reaped."""
    return list(Path(f"/proc/{pid}/task").iterdir())


def chat(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "messages": [{"role": "user", "content": text}], **more}


def schema(text: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": json.loads(text)}}


def long_rows(count: int) -> list[dict[str, Any]]:
    return [chat(f"r{i}", f"Row {i}.", max_tokens=200, ignore_eos=True) for i in range(count)]


def test_each_row_has_its_own_fate(tmp_path: Path, model: Path) -> None:
    bad = schema('{"type": "string", "pattern": "(?<=a)b"}')
    rows = [
        chat("plain", "Hello there.", max_tokens=4),
        chat("refused", "Hello there.", response_format=bad, max_tokens=4),
        chat("long", "word " * 2000, max_tokens=4),
        chat("two", "Hello there.", n=2, temperature=1.0, max_tokens=4),
        chat("probable", "Hello there.", logprobs=True, top_logprobs=2, max_tokens=4),
        chat("chosen", "Hello there.", choices=["red", "blue"]),
        chat("held", "Hello.", response_format=schema('{"enum": ["x", "y"]}'), max_tokens=20),
        {"id": "none", "messages": None},
        chat("cut", "Hello there.", max_tokens=400),
        chat("ids", "Hello there.", return_token_ids=True, max_tokens=4),
        chat("again", "Hello there.", max_tokens=4, seed=3),
    ]
    run = Run(tmp_path, model, rows, "max_tokens = 8\n")
    run.start()

    assert FINISHED_WITH_FAILED_ROWS == run.finish(), run.words()

    found = run.results()
    kinds = {name: row["rowmill_error_kind"] for name, row in found.items()}
    failed = {"refused": "refused", "long": "too_long", "none": "invalid"}
    assert {row["id"]: failed.get(row["id"]) for row in rows} == kinds
    assert found["plain"]["rowmill_text"] == found["again"]["rowmill_text"]
    assert 2 == len(found["two"]["rowmill_choices"])
    assert 2 == len(found["probable"]["rowmill_choices"][0]["logprobs"][0]["top"])
    assert found["chosen"]["rowmill_text"] in ("red", "blue")
    assert json.loads(found["held"]["rowmill_text"]) in ("x", "y")
    assert 4 == len(found["ids"]["rowmill_choices"][0]["token_ids"])
    told = json.loads((run.out / "run.json").read_bytes())
    assert "engine.dtype" in told["identity"]
    assert "engine.enforce_eager" not in told["identity"]


def test_adapters_answer_row_by_row_in_a_cache_that_is_too_small(
    tmp_path: Path, model: Path
) -> None:
    from tests.engines.hf_folders import random_adapter

    adapter = random_adapter(tmp_path / "adapter")
    rows = [
        chat(f"{name}{i}", f"Row {i // 2}.", **lora)
        for i in range(0, 40, 2)
        for name, lora in (("job", {}), ("model", {"lora": ""}), ("again", {"lora": "mine"}))
    ]
    rows.append(chat("none", "Row.", lora="other"))
    more = """
max_tokens = 300
ignore_eos = true
lora = "mine"
[plan]
duplicates = "ask"
"""
    run = Run(
        tmp_path,
        model,
        rows,
        more,
        engine=f"""
seats = 32
num_gpu_blocks_override = 9
loras = {{ mine = "{adapter}" }}
""",
    )
    run.start()

    assert FINISHED_WITH_FAILED_ROWS == run.finish(), run.words()

    found = run.results()
    assert "`mine`" in found["none"]["rowmill_error"]
    texts = {name: row["rowmill_text"] for name, row in found.items()}
    assert all(texts[f"job{i}"] != texts[f"model{i}"] for i in range(0, 40, 2))
    same = sum(texts[f"job{i}"] == texts[f"again{i}"] for i in range(0, 40, 2))
    assert same >= 10  # rounding differs with the company a row is in
    files = (run.out / "events").glob("*")
    told = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    counted = [event.get("engine", {}) for event in told if event["event"] == "sample"]
    assert max(engine.get("preemptions", 0) for engine in counted) > 0
    assert 0 < max(engine.get("kv_use", 0) for engine in counted) <= 1


@pytest.mark.usefixtures("apart")
def test_engine_killed_in_the_middle_is_started_again(tmp_path: Path, model: Path) -> None:
    """First vLLM's own process, then the child that drives it: no row is lost or asked for nothing."""
    run = Run(tmp_path, model, long_rows(400), "")
    run.start()
    run.until(lambda: run.answered() > 10)
    first = run.engine_pid()
    os.kill(titles(first)["VLLM::EngineCore"], signal.SIGKILL)
    run.until(lambda: run.engine_pid() not in (0, first))
    at = run.answered()
    run.until(lambda: run.answered() > at + 10)
    second = run.engine_pid()
    os.kill(second, signal.SIGKILL)

    assert 0 == run.finish(), run.words()[-2000:]
    assert 400 == len(run.results())
    assert {200} == {row["rowmill_output_tokens"] for row in run.results().values()}
    assert [] == list(members(first))
    assert [] == list(members(second))


@pytest.mark.usefixtures("apart")
def test_killed_run_leaves_no_engine_and_is_finished_by_the_next(
    tmp_path: Path, model: Path
) -> None:
    run = Run(tmp_path, model, long_rows(200), "")
    process = run.start()
    run.until(lambda: run.answered() > 10)
    pgid = run.engine_pid()
    assert "VLLM::EngineCore" in titles(pgid)
    process.kill()
    process.wait()
    run.process = None
    run.until(lambda: not list(members(pgid)), GONE_S)
    run.start()

    assert 0 == run.finish(), run.words()[-2000:]
    assert 200 == len(run.results())


@pytest.mark.usefixtures("apart")
def test_orphan_is_ended_by_the_next_start(tmp_path: Path, model: Path) -> None:
    """The run stands still while its child dies, then dies too: nobody is left to end vLLM's own process."""
    run = Run(tmp_path, model, long_rows(100), "")
    process = run.start()
    run.until(lambda: run.answered() > 5)
    pgid = run.engine_pid()
    core = titles(pgid)["VLLM::EngineCore"]
    os.kill(core, signal.SIGSTOP)  # as one that hangs in a driver: it does not end by itself
    process.send_signal(signal.SIGSTOP)
    os.kill(pgid, signal.SIGKILL)
    # A child that is still going would pass the end of its parent on to its group, and so would a thread of one that is
    # dead by name: what it has open is closed with the last of them.
    run.until(lambda: pgid not in list(members(pgid)) and len(threads(pgid)) == 1)
    process.kill()
    process.wait()
    assert core in list(members(pgid))
    run.process = None
    run.start()
    run.until(lambda: not list(members(pgid)))

    assert 0 == run.finish(), run.words()[-2000:]
    assert 100 == len(run.results())
