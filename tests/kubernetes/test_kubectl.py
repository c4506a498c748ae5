"""`rowmill k8s` with the real `kubectl`, against a small API server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.cli import main
from tests.kubernetes import samples
from tests.kubernetes.api import Api, serving

JOB = """
source = "s3://bucket/in/*.jsonl"
output = "OUT"
prompt = "{text}"
engine = { name = "echo" }
[kubernetes]
name = "rowmill-reviews"
image = "registry.example/rowmill:0.1"
workers = 4
claims = { "/CLAIM" = "shared" }
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path) as (api, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
        yield api


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.toml"
    out = f"{tmp_path}/out"
    file.write_text(JOB.replace("OUT", out).replace("/CLAIM", str(tmp_path)))
    return str(file)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["k8s", *words], standalone_mode=False)
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_job_is_made_once_and_again_when_it_has_ended(
    api: Api, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(capsys, "submit", job)

    assert code == 0, said
    assert "job/rowmill-reviews made" in said
    assert api.kinds() == ["ConfigMap", "Job"]

    code, said = told(capsys, "submit", job)

    assert code == 2
    assert "`job/rowmill-reviews` runs already" in said

    (made,) = (thing for thing in api.objects.values() if thing["kind"] == "Job")
    made["status"] = samples.failed_job("FailedIndexes", "some")["status"]
    code, said = told(capsys, "submit", job)

    assert code == 0, said
    assert "had ended; it is replaced" in said
    (again,) = (thing for thing in api.objects.values() if thing["kind"] == "Job")
    assert "status" not in again


def test_what_the_cluster_refuses_is_told_in_its_words(
    api: Api, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refusal = "User cannot create resource configmaps"

    code, said = told(capsys, "submit", job)

    assert code == 2
    assert "User cannot create resource configmaps" in said


def test_status_logs_and_diagnose_look_at_the_cluster(
    api: Api, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.put(samples.job(ready=1, succeeded=2, failedIndexes="3"))
    api.put(samples.pod(0, phase="Running"))
    denied = samples.waiting("ErrImagePull", "401 Unauthorized")
    denied["metadata"]["name"] = "rowmill-reviews-1-aaaaa"
    api.put(denied)
    api.put(samples.event("FailedCreate", "exceeded quota: gpus, requested: nvidia.com/gpu=1"))
    api.logs["rowmill-reviews-0-x7k2p"] = "12/40 rows\n20/40 rows\n"

    code, said = told(capsys, "status", job)
    assert code == 0
    assert "rowmill-reviews: running" in said
    assert "workers 2 of 4 ended, 4 at a time" in said
    assert "1 Pending, 1 Running" in said
    assert "failed  indexes 3" in said

    code, said = told(capsys, "logs", job, "--index", "0")
    assert code == 0
    assert "rowmill-reviews-0-x7k2p  20/40 rows" in said

    code, said = told(capsys, "diagnose", job)
    assert code == 5, said
    assert "gpu_quota: the quota of the namespace has no GPUs left" in said
    assert "image_denied: the registry does not let the node have the image" in said


def test_nothing_there_is_told(api: Api, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, "status", job)

    assert code == 0
    assert "rowmill-reviews: absent" in said
