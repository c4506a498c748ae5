"""`k8s`: a job file -> what a cluster runs it by, and how it fares there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from rowmill.cli.front import any_setting_option, debug_option, json_option, wants_json
from rowmill.cli.shown import lines_of, plain
from rowmill.cli.voice import out, out_json, say

if TYPE_CHECKING:
    from rowmill.config import EngineConfig, Job

BLOCKED = 5


@click.group()
def k8s() -> None:
    """Run a job on Kubernetes, or as an array of Slurm.

    What pods are like is said in `[kubernetes]` of the job file.
    """


def cluster_options(command: Any) -> Any:
    """What all of these take."""
    parts = (
        click.argument("job_file", metavar="JOB.toml"),
        any_setting_option,
        json_option,
        debug_option,
    )
    for part in reversed(parts):
        command = part(command)
    return command


rayjob_option = click.option(
    "--rayjob", is_flag=True, help="A RayJob of KubeRay in place of an Indexed Job."
)


@k8s.command()
@cluster_options
@rayjob_option
@click.option("--slurm", is_flag=True, help="A script for `sbatch` in place of an Indexed Job.")
def render(job_file: str, sets: tuple[str, ...], rayjob: bool, slurm: bool) -> None:
    """Write what `kubectl apply -f -` or `sbatch` takes, checked, to stdout."""
    from rowmill.kubernetes.render import render as render_job

    if rayjob and slurm:
        reason = "--rayjob and --slurm exclude each other"
        raise click.UsageError(reason)
    form: Literal["job", "rayjob", "slurm"] = (
        "slurm" if slurm else "rayjob" if rayjob else "job"
    )
    made = render_job(_job(job_file, sets), form)
    for note in made.notes:
        say(f"note: {note}")
    if wants_json():
        out_json(plain(made))
    else:
        out(made.text.rstrip("\n"))


@k8s.command()
@click.argument("manifests", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--version",
    default="1.33",
    show_default=True,
    metavar="1.N",
    help="Version of the cluster.",
)
@json_option
@debug_option
def check(manifests: tuple[str, ...], version: str) -> None:
    """Check manifests, whoever wrote them: kinds, fields, types, values, rules between fields."""
    from rowmill.kubernetes.checks import is_foreign
    from rowmill.kubernetes.documents import read_documents
    from rowmill.kubernetes.render import check_documents

    number = 0
    for path in manifests:
        documents = read_documents(path)
        for one in filter(is_foreign, documents):
            say(
                f"{path}: `{one.get('kind')}` of `{one['apiVersion']}` is not known here, and not checked"
            )
        known = [one for one in documents if not is_foreign(one)]
        check_documents(known, path, version)
        number += len(known)
    say(f"{number} objects are as Kubernetes {version} wants them")
    if wants_json():
        out_json({"objects": number, "version": version})


@k8s.command()
@cluster_options
@rayjob_option
def submit(job_file: str, sets: tuple[str, ...], rayjob: bool) -> None:
    """Render and send; a Job that ended before is replaced, and the run goes on."""
    from rowmill.kubernetes.following import submit as send
    from rowmill.kubernetes.render import render as render_job

    job = _job(job_file, sets)
    made = render_job(job, "rayjob" if rayjob else "job")
    for note in made.notes:
        say(f"note: {note}")
    done = []
    for line in send(job, made.documents):
        say(line)
        done.append(line)
    say(f"look: rowmill k8s status {job_file}; rowmill k8s diagnose {job_file}")
    if wants_json():
        out_json({"done": done})


@k8s.command()
@cluster_options
def status(job_file: str, sets: tuple[str, ...]) -> None:
    """Tell how far the Job and its run are."""
    from rowmill.kubernetes.following import follow

    _show(follow(_job(job_file, sets)))


@k8s.command()
@cluster_options
@click.option("--index", type=click.IntRange(min=0), help="Of this worker alone.")
@click.option(
    "--tail", type=click.IntRange(min=1), default=20, show_default=True, help="Lines a pod."
)
def logs(job_file: str, sets: tuple[str, ...], index: int | None, tail: int) -> None:
    """Show the last lines of each pod."""
    from rowmill.kubernetes.following import logs as listen

    lines = list(listen(_job(job_file, sets), index=index, tail=tail))
    if wants_json():
        out_json(lines)
    for line in () if wants_json() else lines:
        out(line)


@k8s.command()
@cluster_options
@click.option(
    "--from",
    "recorded",
    metavar="FILE",
    help="Objects that `kubectl get job,pods,events -o json` wrote, in place of the cluster; `-` is standard input.",
)
def diagnose(job_file: str, sets: tuple[str, ...], recorded: str | None) -> int:
    """Tell why pods do not start, die or are gone, and what helps.

    Ends with 5 where something cannot go on by itself.
    """
    from rowmill.kubernetes.diagnose import diagnose as look
    from rowmill.kubernetes.following import diagnosed

    if recorded is not None:
        import json

        with click.open_file(recorded, encoding="utf-8") as file:
            found = look([json.load(file)])
    else:
        found = diagnosed(_job(job_file, sets))
    _show(found)
    return BLOCKED if any(one.is_blocking for one in found.findings) else 0


def _show(found: Any) -> None:
    if wants_json():
        out_json(plain(found))
        return
    for line in lines_of(found):
        out(line)


def _job(job_file: str, sets: Sequence[str]) -> Job:
    from rowmill.job_file import load_job

    return load_job(
        job_file, sets=sets, needs=("source", "output"), check_options=_mistakes_there
    )


def _mistakes_there(engine: EngineConfig) -> Sequence[str]:
    from rowmill.engines import check_options
    from rowmill.kubernetes.asked import elsewhere

    return check_options(elsewhere(engine))
