"""A run's numbers, taken away: Prometheus' page, OpenTelemetry, a log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import rowmill
from rowmill.config import Job
from rowmill.errors import BadJob, ConfigError
from rowmill.events import EngineReady, Planned, Progress, TaskEnded
from rowmill.executors import run as run_job
from rowmill.metrics.families import COUNTED, Seen
from rowmill.telemetry import GpuUse, Sample, Stage
from tests.servers.prometheus import awaited, program, prometheus

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\browmill_[a-z0-9_]+\b")
UNIT = re.compile(r"_(seconds|bytes|ratio|watts|hertz|celsius|tokens|info)$")


def all_seen() -> Seen:
    """One of each event, with all that it can say."""
    seen = Seen()
    engine = dict.fromkeys(COUNTED, 1.0)
    gpu = GpuUse(index=0, use=0.5, tensor_use=0.5, bandwidth_use=0.5, power_w=1, clock_mhz=1)
    seen(EngineReady(name="vllm", about="vLLM", start_s=1, seats=8, kv_tokens=9))
    seen(Progress(done=2, ok=1, failed=1, total=4))
    seen(
        Sample(
            waiting={"feed": 1}, stages={"read": Stage(1, 2, 3)}, cpu_s={"rowmill": 1, "rowmill/read": 1},
            memory_bytes={"rowmill": 1}, engine=engine, gpus=[gpu],
        )
    )  # fmt: skip
    seen(TaskEnded(task=0, rows=1, ok=1, failed=0, prompt_tokens=1, output_tokens=1, seconds=1, tokens_s=1))  # fmt: skip
    return seen


def job_of(tmp_path: Path, rows: int = 300, **telemetry: object) -> Job:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"prompt": "row {i}"}}\n' for i in range(rows)))
    return Job.model_validate(
        {
            "source": str(source),
            "output": str(tmp_path / "out"),
            "raw": True,
            "engine": {"name": "echo"},
            "telemetry": telemetry,
        }
    )


def exposed() -> set[str]:
    """Names as Prometheus sees them."""
    return {f.name + "_total" * (f.kind == "counter") for f in all_seen().families()}


def test_metrics_of_rules_and_dashboard_are_there_and_have_units() -> None:
    texts = [file.read_text("utf-8") for file in (DEPLOY / "prometheus").glob("*.yml")]
    texts.append((DEPLOY / "grafana/rowmill.json").read_text("utf-8"))
    used = {name for text in texts for name in METRIC.findall(text)}
    names = [family.name for family in all_seen().families()]

    assert used - exposed() == set()
    assert len(names) == len(set(names)) > 30
    assert [n for n in names if "rows" not in n and not UNIT.search(n)] == [
        *("rowmill_tasks_committed", "rowmill_seats"),
        *("rowmill_engine_preemptions", "rowmill_engine_steps", "rowmill_engine_retries"),
    ]


def test_what_is_not_known_is_left_out() -> None:
    seen = Seen()
    seen(Sample(engine={"running": 3.0}, gpus=[GpuUse(index=0, use=0.5)]))
    names = {family.name for family in seen.families()}

    assert "rowmill_engine_running_rows" in names
    assert "rowmill_engine_kv_cache_used_ratio" not in names
    assert "rowmill_gpu_tensor_busy_ratio" not in names


def test_nothing_is_served_where_nothing_is_asked_and_a_taken_port_is_told(
    tmp_path: Path,
) -> None:
    told: list[object] = []
    run_job(job_of(tmp_path), listen=told.append)

    assert not any("metrics:" in getattr(event, "text", "") for event in told)

    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as taken:
        port = taken.server_address[1]
        with pytest.raises(ConfigError, match="Address already in use; name another, or 0"):
            run_job(job_of(tmp_path, metrics_port=port))
    with pytest.raises(ValueError, match="is no root of an HTTP server"):
        job_of(tmp_path, otlp="collector:4318")


def test_page_is_served_on_the_loopback_while_the_run_goes(tmp_path: Path) -> None:
    pages: list[str] = []

    def listen(event: object) -> None:
        found = re.search(
            r"metrics: (http://127\.0\.0\.1:\d+/metrics)", getattr(event, "text", "")
        )
        if found:
            pages.append(found[1])
        elif isinstance(event, Planned):
            with urllib.request.urlopen(pages[0]) as response:
                pages.append(response.read().decode())

    run_job(job_of(tmp_path, metrics_port=0), listen=listen)

    address, page = pages
    assert "# TYPE rowmill_tasks_committed_total counter" in page
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)


def test_log_has_a_line_at_each_task_s_start_and_end(tmp_path: Path) -> None:
    job = job_of(tmp_path, log=str(tmp_path / "run.log"))
    run_job(job)
    lines = [json.loads(line) for line in (tmp_path / "run.log").read_bytes().splitlines()]
    by_event = {line["event"]: line for line in lines}

    assert {"planned", "engineready", "taskbegan", "taskended", "summary"} <= by_event.keys()
    assert all(line["time"].endswith("+00:00") and line["level"] == "info" for line in lines)
    ended = by_event["taskended"]
    assert (300, 300, 0) == (ended["rows"], ended["ok"], ended["failed"])
    assert ended["seconds"] > 0 < ended["tokens_s"]
    assert "row 1" not in (tmp_path / "run.log").read_text()


class Collector(BaseHTTPRequestHandler):
    """Takes what an OpenTelemetry SDK sends."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.taken.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.taken = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_opentelemetry_gets_metrics_and_a_span_for_each_task(
    tmp_path: Path, collector: Any
) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )

    run_job(job_of(tmp_path, 2500, otlp=f"http://127.0.0.1:{collector.server_address[1]}"))
    names, spans = set(), []
    for path, body in collector.taken:
        if path == "/v1/metrics":
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                names |= {m.name for scope in part.scope_metrics for m in scope.metrics}
        else:
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans += [span for scope in traced.scope_spans for span in scope.spans]

    assert {"rowmill_stage_seconds", "rowmill_cpu_seconds", "rowmill_tasks_committed"} <= names
    assert 3 == len(spans)
    rows = [a.value.int_value for s in spans for a in s.attributes if a.key == "rowmill.rows"]
    assert 2500 == sum(rows)
    assert all(span.end_time_unix_nano > span.start_time_unix_nano for span in spans)


@pytest.mark.slow
def test_a_collector_that_is_away_ends_no_run(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as gone:
        port = gone.server_address[1]

    summary = run_job(job_of(tmp_path, otlp=f"http://127.0.0.1:{port}"))

    assert (300, 0) == (summary.ok, summary.exit_code)


@pytest.mark.slow
def test_promtool_finds_no_fault_and_the_real_prometheus_reads_the_numbers(
    tmp_path: Path,
) -> None:
    promtool, rules = program("promtool"), DEPLOY / "prometheus/rules.yml"
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"prompt": "row {i}"}}\n' for i in range(100_000)))
    command = [sys.executable, "-m", "rowmill", "run", str(source), "-o", str(tmp_path / "out")]
    command += ["--engine", "echo", "--metrics-port", "0", "--set", "raw=true"]
    command += ["--set", "engine.seats=32", "--set", "engine.delay_s=0.05"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr is not None
            page = next(line for line in run.stderr if line.startswith("metrics: "))
            page = page.removeprefix("metrics: ").strip()
            with prometheus(tmp_path, page, rules) as root:
                done = awaited(root, 'rowmill_rows_done_total{fate="ok"} > 0')
                cpu = awaited(root, "rowmill_cpu_seconds_total > 0")
                rate = awaited(root, "rowmill:rows:rate1m > 0")
            with urllib.request.urlopen(page) as response:
                text = response.read()
        finally:
            run.kill()

    assert float(done[0]["value"][1]) > 0
    assert {"rowmill", "engine"} <= {series["metric"]["process"] for series in cpu}
    assert 0 < float(rate[0]["value"][1]) < 100_000
    for words, said in (
        (["check", "metrics"], text),
        (["check", "rules", str(rules)], b""),
        (["check", "config", str(DEPLOY / "prometheus/scrape.yml")], b""),
    ):
        checked = subprocess.run(
            [promtool, *words], input=said, capture_output=True, check=False
        )
        assert (0, b"") == (checked.returncode, checked.stderr), checked.stdout


def test_telemetry_is_no_part_of_a_run_s_identity(tmp_path: Path) -> None:
    run_job(job_of(tmp_path))

    assert 300 == run_job(job_of(tmp_path, log=str(tmp_path / "again.log"))).ok
    assert rowmill.Job().telemetry.metrics_host == "127.0.0.1"
    with pytest.raises((BadJob, ValueError)):
        job_of(tmp_path, metrics_port=70_000)
