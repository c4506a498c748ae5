"""What a job file comes to on a cluster."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rowmill.cli import main
from rowmill.config import Job
from rowmill.errors import BadJob
from rowmill.job_file import load_job
from rowmill.kubernetes.indexed_job import job_text
from rowmill.kubernetes.needs import needs_of
from rowmill.kubernetes.render import render
from rowmill.shown.toml_text import toml_of
from tests.kubernetes.jobs import job_of

GPU = {"engine.name": "vllm", "engine.model": "org/model"}


def job_document(**settings: Any) -> Any:
    return render(job_of(**settings)).documents[-1]


def pod_of(document: Any) -> Any:
    return document["spec"]["template"]["spec"]


def test_the_text_reads_back_as_the_documents() -> None:
    made = render(job_of(kubernetes__priority_class="batch", kubernetes__priority=-5))

    assert list(yaml.safe_load_all(made.text)) == made.documents
    assert [d["kind"] for d in made.documents] == ["PriorityClass", "ConfigMap", "Job"]


def test_the_job_file_in_the_map_is_the_job(tmp_path: Path) -> None:
    job = job_of(
        prompt='a "quoted" {text}\n\ttab \x7f \u2028 \U0001f600 \\',
        **{"sampling.schema": {"type": "object", "properties": {"a b": {"type": "string"}}}},
    )

    file = tmp_path / "job.toml"
    file.write_text(render(job).documents[0]["data"]["job.toml"], "utf-8")

    assert load_job(file) == job.model_copy(update={"kubernetes": Job().kubernetes})


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.recursive(
            st.text()
            | st.integers(-(2**60), 2**60)
            | st.booleans()
            | st.floats(allow_nan=False),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
    )
)
def test_toml_comes_back_as_it_was(tree: dict[str, Any]) -> None:
    import tomllib

    assert tomllib.loads(toml_of(tree)) == tree


def test_pods_are_nobodies_on_a_closed_root() -> None:
    pod = pod_of(job_document())

    assert pod["securityContext"]["runAsNonRoot"] is True
    closed = pod["containers"][0]["securityContext"]
    assert closed["readOnlyRootFilesystem"] is True
    assert closed["allowPrivilegeEscalation"] is False
    assert closed["capabilities"] == {"drop": ["ALL"]}


def test_the_grace_covers_the_drain() -> None:
    pod = pod_of(job_document(**{"run.drain_s": 40.5}))

    assert pod["terminationGracePeriodSeconds"] == 41 + 22


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"nvidia.com/gpu": "1"}),
        ({"engine.tensor_parallel_size": 4}, {"nvidia.com/gpu": "4"}),
        (
            {"kubernetes.gpu_sharing": "mig", "kubernetes.mig_profile": "1g.10gb"},
            {"nvidia.com/mig-1g.10gb": "1"},
        ),
        (
            {
                "kubernetes.gpu_sharing": "hami",
                "kubernetes.gpu_memory_mib": 8000,
                "kubernetes.gpu_cores": 30,
            },
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "30"},
        ),
        (
            {
                "kubernetes.gpu_sharing": "time_slices",
                "kubernetes.gpu_resource": "nvidia.com/gpu.shared",
            },
            {"nvidia.com/gpu.shared": "1"},
        ),
    ],
)
def test_gpus_are_asked_for_by_their_resource(
    settings: dict[str, Any], expected: dict[str, str]
) -> None:
    resources = pod_of(job_document(**GPU, **settings))["containers"][0]["resources"]

    for group in ("requests", "limits"):
        found = {k: v for k, v in resources[group].items() if "/" in k}
        assert found == expected


def test_processors_and_memory_follow_from_the_gpu() -> None:
    needs = needs_of(job_of(**GPU, plan__gpu="2xL4"))

    assert (needs.gpus, needs.cpu, needs.shm_gib) == (1, 8, 16)
    assert needs.memory_gib == 2 * 22 + 16
    assert "twice the 22 GiB of `L4`" in needs.reasons["memory_gib"]


def test_an_engine_without_a_gpu_asks_for_none() -> None:
    pod = pod_of(job_document())

    assert not [k for k in pod["containers"][0]["resources"]["limits"] if "/" in k]
    assert all(one["key"] != "nvidia.com/gpu" for one in pod["tolerations"])


def test_cheap_gpus_are_preferred_in_their_order_and_spot_comes_after() -> None:
    pod = pod_of(
        job_document(
            **GPU,
            kubernetes__prefer_gpus=["NVIDIA-L4", "NVIDIA-A10"],
            kubernetes__spot="prefer",
        )
    )

    soft = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    weights = {
        one["preference"]["matchExpressions"][0]["values"][0]: one["weight"] for one in soft
    }
    assert weights["NVIDIA-L4"] > weights["NVIDIA-A10"] > weights["SPOT"]


def test_a_queue_suspends_the_job_until_it_admits_it() -> None:
    document = job_document(kubernetes__queue="gpus")

    assert document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert document["spec"]["suspend"] is True


def test_secrets_are_references_alone() -> None:
    made = render(
        job_of(
            **{
                "engine.name": "http",
                "engine.url": "http://server/v1",
                "engine.model": "m",
                "engine.api_key": "env:SERVER_KEY",
                "kubernetes.secrets": {"SERVER_KEY": "server/key"},
            }
        )
    )

    env = pod_of(made.documents[-1])["containers"][0]["env"]
    (found,) = (one for one in env if one["name"] == "SERVER_KEY")
    assert found == {
        "name": "SERVER_KEY",
        "valueFrom": {"secretKeyRef": {"name": "server", "key": "key"}},
    }


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kubernetes.image": ""}, "`image` is not set"),
        (
            {"source": ["reviews.jsonl"]},
            "`source` is `reviews.jsonl`, which a pod does not have",
        ),
        ({"source": ["-"]}, "`source` is `-`, which a pod does not have"),
        ({"output.path": "out"}, "`output` is `out`, which a pod does not have"),
        ({"kubernetes.claims": {"/etc": "a"}}, "`claims`: `/etc` is no path"),
        ({"kubernetes.secrets": {"A": "hunter2"}}, "`secrets.A` is no reference"),
        ({"kubernetes.environment": {"HF_TOKEN": "x"}}, "`environment.HF_TOKEN` looks like"),
        ({"kubernetes.gpu_sharing": "mig"}, '`mig_profile = "1g.10gb"`'),
        ({"kubernetes.mig_profile": "1g.10gb"}, '`gpu_sharing = "mig"`'),
        ({"kubernetes.gpu_sharing": "hami"}, "gets the whole memory"),
        ({"kubernetes.model_claim": "models"}, "name the model's path in it"),
        ({"kubernetes.max_failed_workers": 3}, "over the 1 of `workers`"),
    ],
)
def test_what_a_pod_cannot_run_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(BadJob) as caught:
        render(job_of(**settings))

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_reference_without_a_secret_is_refused() -> None:
    job = job_of(
        **{
            "engine.name": "http",
            "engine.url": "http://server/v1",
            "engine.model": "m",
            "engine.api_key": "env:SERVER_KEY",
        }
    )

    with pytest.raises(BadJob, match="env:SERVER_KEY"):
        render(job)


def test_a_volume_of_a_claim_may_hold_input_and_output() -> None:
    pod = pod_of(
        job_document(
            source=["/work/in/*.jsonl"],
            output__path="/work/out",
            kubernetes__claims={"/work": "shared"},
        )
    )

    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert volumes[mounts["/work"]]["persistentVolumeClaim"]["claimName"] == "shared"


def test_the_model_is_copied_to_the_node_whole_or_not_at_all(tmp_path: Path) -> None:
    """The script of the init container, run here; a killed one leaves nothing that looks whole."""
    name = "odd $(name)/model"
    pod = pod_of(
        job_document(**{**GPU, "engine.model": f"/models/{name}"}, kubernetes__model_claim="m")
    )
    (copier,) = pod["initContainers"]
    script = copier["command"][2]
    for path, folder in (("/model-store", "store"), ("/models", "models")):
        script = script.replace(path, str(tmp_path / folder))
    source = tmp_path / "store" / name
    source.mkdir(parents=True)
    (source / "weights").write_bytes(b"w" * 1000)
    half = tmp_path / "models" / f"{name}.part"
    half.mkdir(parents=True)
    (half / "weights").write_bytes(b"w")

    for _ in range(2):
        subprocess.run(["sh", "-c", script], check=True)

    copied = tmp_path / "models" / name
    assert (copied / "weights").read_bytes() == b"w" * 1000
    assert not half.exists()


def test_a_ray_job_has_a_head_without_gpus() -> None:
    document = render(job_of(**GPU, kubernetes__workers=5), "rayjob").documents[-1]

    cluster = document["spec"]["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]
    (workers,) = cluster["workerGroupSpecs"]
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    assert workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (0, 5)


def test_render_writes_one_file_and_says_where_it_is_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(job_text(job_of()) + '\n[kubernetes]\nimage = "i:1"\n')

    assert main(["k8s", "render", str(file), "--json"], standalone_mode=False) == 0

    made = json.loads(capsys.readouterr().out)
    assert made["documents"][-1]["spec"]["completionMode"] == "Indexed"
    assert load_job(file).kubernetes.image == "i:1"


def test_the_job_of_the_docs_renders(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/kubernetes.md").read_text("utf-8")
    (text,) = re.findall(r"^```toml kubernetes\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / "job.toml"
    file.write_text(text)

    made = render(load_job(file))

    assert made.documents[-1]["spec"]["completions"] == 16


def test_the_slurm_script_is_a_script_and_keeps_no_secret() -> None:
    made = render(
        job_of(
            **GPU,
            kubernetes__workers=16,
            kubernetes__parallelism=4,
            kubernetes__secrets={"HF_TOKEN": "hub/token"},
            kubernetes__slurm={"partition": "gpu", "time": "12:00:00"},
        ),
        "slurm",
    )

    subprocess.run(["bash", "-n"], input=made.text.encode(), check=True)
    lines = made.text.splitlines()
    assert "#SBATCH --array=0-15%4" in lines
    assert "#SBATCH --partition=gpu" in lines
    assert ': "${HF_TOKEN:?set it before sbatch; it is not kept here}"' in lines
