"""What the image's entry point needs: nothing but its volumes. Run as nobody, without rights, on a root it cannot write to.

A mount namespace stands for the container: the whole disk read only, the pod's one folder writable.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rowmill.kubernetes.render import render
from tests.cases.compare import read_records
from tests.kubernetes.jobs import job_of

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/kubernetes/Dockerfile"
SCRATCH = "/mnt/scratch"
POD_VARIABLES = {
    "JOB_COMPLETION_INDEX": "0",
    "ROWMILL_WORKERS": "1",
    "ROWMILL_TOKEN": "uid",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
}
MAIN = "from rowmill.cli import main; main()"
PROBE = "import os; print(os.geteuid()); open('/mnt/src/rowmill/written', 'w')"


def can_unshare() -> bool:
    """Whether this machine lets us make a namespace of mounts."""
    words = ["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs t /mnt"]
    return os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_unshare(), reason="takes root and namespaces of mounts"),
]


def instructions() -> dict[str, str]:
    """The Dockerfile's instructions, the last of each kind, lines joined."""
    lines = [x for x in DOCKERFILE.read_text("utf-8").splitlines() if not x.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return dict(line.split(maxsplit=1) for line in joined.splitlines() if line)


def start(folder: Path, code: str, *words: str) -> subprocess.Popen[bytes]:
    """Python as the pod's user; `folder` is its scratch."""
    user = job_of().kubernetes.user
    folder.mkdir(exist_ok=True)
    os.chown(folder, user, user)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    python = Path(sys.executable).resolve()
    places = {
        "python": python.parents[1],
        "src": ROOT / "src",
        "packages": Path(packages),
        "scratch": folder,
    }
    binds = [
        f"mkdir /mnt/{n}; mount --bind {shlex.quote(str(p))} /mnt/{n}"
        for n, p in places.items()
    ]
    seal = [
        f"mount -o remount,bind,ro {path}"
        for path in ("/mnt/src", "/mnt/packages", "/mnt", "/")
    ]
    drop = f"exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs"
    drop += " --bounding-set -all --inh-caps -all"
    run: Sequence[str] = [f"/mnt/python/bin/{python.name}", "-c", code, *words]
    script = [
        "set -e",
        "mount --make-rprivate /",
        "mount -t tmpfs -o mode=755 t /mnt",
        *binds,
        *seal,
        f"cd {SCRATCH}",
        f"{drop} {shlex.join(run)}",
    ]
    return subprocess.Popen(
        ["unshare", "-m", "sh", "-c", "\n".join(script)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": "/mnt/src:/mnt/packages",
            **POD_VARIABLES,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def job_in(folder: Path, rows: int, engine: str = "") -> str:
    """A job over `rows` rows, all of it in the pod's folder."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps({"id": i, "text": f"row {i}"}) + "\n" for i in range(rows))
    (folder / "in.jsonl").write_text(lines)
    (folder / "job.toml").write_text(
        f'source = "{SCRATCH}/in.jsonl"\noutput = "{SCRATCH}/out"\nprompt = "{{text}}"\n'
        f'[engine]\nname = "echo"\n{engine}'
    )
    return f"{SCRATCH}/job.toml"


def test_the_image_is_made_for_the_pod() -> None:
    found = instructions()

    user = job_of().kubernetes.user
    pod = render(job_of()).documents[-1]["spec"]["template"]["spec"]
    assert found["USER"] == f"{user}:{user}"
    assert pod["containers"][0]["command"] == json.loads(found["ENTRYPOINT"]) == ["rowmill"]
    assert found["WORKDIR"] == pod["containers"][0]["workingDir"]


def test_what_stands_for_the_container_is_closed(tmp_path: Path) -> None:
    child = start(tmp_path / "scratch", PROBE)
    said = child.communicate(timeout=60)[0].decode()

    assert str(job_of().kubernetes.user) in said.splitlines()
    assert "Read-only file system" in said


def test_a_worker_runs_as_nobody_on_a_closed_root(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"

    child = start(folder, MAIN, "worker", job_in(folder, 500))
    said = child.communicate(timeout=120)[0].decode()

    assert child.returncode == 0, said
    (part,) = (folder / "out" / "results").iterdir()
    assert [record["id"] for record in read_records(part)] == list(range(500))
    assert part.stat().st_uid == job_of().kubernetes.user


def test_the_entry_point_drains_after_sigterm(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    child = start(folder, MAIN, "worker", job_in(folder, 5000, "delay_s = 0.05\nseats = 2\n"))
    assert child.stdout is not None
    said = b""
    while b"rows/s" not in said:
        line = child.stdout.readline()
        assert line, said.decode()
        said += line
    child.send_signal(signal.SIGTERM)
    rest = child.communicate(timeout=60)[0]

    assert child.returncode == 143, (said + rest).decode()
