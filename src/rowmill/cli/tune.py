"""`tune`: a job -> the engine settings that do it soonest, written into its file."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import click

from rowmill.cli.front import wants_json
from rowmill.cli.shown import plain
from rowmill.cli.voice import out, out_json, say
from rowmill.cli.work import job_options, read_job

if TYPE_CHECKING:
    from rowmill.tune.report import Tuned

SECONDS, STARTS, MINUTES = 90.0, 4, 30.0


@click.command()
@job_options
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=SECONDS,
    show_default=True,
    metavar="S",
    help="Run a setting so long at most; less where its rate is known to 5 %.",
)
@click.option(
    "--starts",
    type=click.IntRange(min=1),
    default=STARTS,
    show_default=True,
    metavar="N",
    help="Start the engine so often at most.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=MINUTES,
    show_default=True,
    metavar="M",
    help="Start no further engine after so long.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="KEY=VALUE",
    help="Try an engine setting that changes answers, as `kv_cache_dtype=fp8`. Repeatable.",
)
@click.option(
    "--dry-run", is_flag=True, help="Tell what would be tried; start and write nothing."
)
@click.option("--no-write", is_flag=True, help="Leave the job file as it is.")
def tune(
    inputs: tuple[str, ...],
    seconds: float,
    starts: int,
    minutes: float,
    also: tuple[str, ...],
    dry_run: bool,
    no_write: bool,
    sets: tuple[str, ...],
    **flags: Any,
) -> int:
    """Find the engine settings that do a job soonest, on rows of the job itself.

    Takes what `run` takes. Answers of trials are kept as results of the job; `run` goes on behind them. The settings
    are written into the job file, each with its reason.
    """
    job = read_job(inputs, sets, flags, needs=("source", "output"))

    from rowmill import tune as tuning
    from rowmill.progress import open_progress

    ask = tuning.Ask(
        patience=tuning.Patience(most_s=seconds),
        most_starts=starts,
        most_s=60.0 * minutes,
        also=tuple(_settings(also)),
    )
    if dry_run:
        found = tuning.dry_run(job, ask)
    else:
        with open_progress(say) as listen:
            found = tuning.tune(job, ask, listen=listen)
        if found.chosen and not no_write:
            _write(inputs, found)
    if wants_json():
        out_json(plain(found))
    else:
        for line in found.lines():
            out(line)
    return found.exit_code


def _settings(texts: tuple[str, ...]) -> list[tuple[str, Any]]:
    """KEY=VALUE; a value is TOML, else text."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            msg = f"takes KEY=VALUE, as `kv_cache_dtype=fp8`; got `{text}`"
            raise click.BadParameter(msg, param_hint="`--also`")
        name = name.strip().removeprefix("engine.")
        try:
            found.append((name, tomllib.loads(f"value = {value}")["value"]))
        except tomllib.TOMLDecodeError:
            found.append((name, value.strip()))
    return found


def _write(inputs: tuple[str, ...], found: Tuned) -> None:
    """Put the settings into the job file, or say what to put there."""
    from pathlib import Path

    from rowmill.tune.writing import engine_lines, write

    files = [name for name in inputs if name.endswith(".toml")]
    if files and write(Path(files[0]), found.chosen):
        found.written = files[0]
        return
    where = (
        f"`{files[0]}` is spelt too unusually to be changed"
        if files
        else "there is no job file"
    )
    found.notes.append(f"{where}; these lines belong into `[engine]` of one:")
    found.notes += engine_lines(found.chosen)
