"""The real command line: in process, and as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rowmill.cli import main
from rowmill.cli.front import EXITS, Front, debug_option, json_option
from rowmill.cli.voice import out
from rowmill.cli.work import summary_record
from rowmill.errors import BadJob, EngineDied, InvalidRow, StorageError
from rowmill.events import Summary

JOB_OPTIONS = [
    "--debug",
    "--engine",
    "--json",
    "--limit",
    "--model",
    "--output",
    "--prompt",
    "--set",
    "--url",
]
JOB_OPTIONS = sorted([*JOB_OPTIONS, "--gpu-hour"])
OPTIONS = {
    "bench": [
        "--contender",
        "--debug",
        "--defaults",
        "--engine",
        "--engine-set",
        "--folder",
        "--gpu",
        "--gpu-hour",
        "--into",
        "--json",
        "--max-seconds",
        "--max-tokens",
        "--memory-share",
        "--model",
        "--out",
        "--profile",
        "--prompt",
        "--rounds",
        "--rows",
        "--seconds",
        "--seed",
        "--slow",
        "--slow-rounds",
        "--source",
        "--tokenizer",
        "--vary",
        "--workload",
    ],
    "check": sorted([*JOB_OPTIONS, "--deadline", "--fix", "--gpu", "--sample"]),
    "doctor": ["--debug", "--engine", "--json", "--model", "--output", "--set"],
    "export": ["--debug", "--json", "--output", "--set", "--to"],
    "k8s": [],
    "k8s check": ["--debug", "--json", "--version"],
    "k8s diagnose": ["--debug", "--from", "--json", "--set"],
    "k8s logs": ["--debug", "--index", "--json", "--set", "--tail"],
    "k8s render": ["--debug", "--json", "--rayjob", "--set", "--slurm"],
    "k8s status": ["--debug", "--json", "--set"],
    "k8s submit": ["--debug", "--json", "--rayjob", "--set"],
    "report": ["--against", "--debug", "--json", "--output"],
    "retry": ["--debug", "--json", "--kind", "--set"],
    "run": sorted(
        [*JOB_OPTIONS, "--address", "--append", "--executor", "--join", "--metrics-port"]
    ),
    "run-batch": sorted(
        [
            *(
                "--debug",
                "--dialect",
                "--engine",
                "--errors",
                "--input-file",
                "--json",
                "--model",
            ),
            *(
                "--output-file",
                "--output-tmp-dir",
                "--retry",
                "--served-model-name",
                "--set",
                "--url",
            ),
        ]
    ),
    "status": ["--debug", "--json"],
    "trace": ["--debug", "--json"],
    "tune": sorted(
        [
            *JOB_OPTIONS,
            *("--also", "--dry-run", "--minutes", "--no-write", "--seconds", "--starts"),
        ]
    ),
    "watch": ["--debug", "--json", "--port"],
    "worker": sorted([*JOB_OPTIONS, "--index", "--of", "--token"]),
}


def call(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def process(*args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "rowmill", *args],
        capture_output=True,
        check=False,
        env={**os.environ, **env},
        timeout=60,
    )


def commands_of(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command, and those inside groups."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{before}{name} ")


def options_of(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option)]


def test_commands_and_options_are_frozen() -> None:
    found = {
        name: sorted(o.opts[-1] for o in options_of(command))
        for name, command in commands_of(main)
    }

    assert found == OPTIONS


def test_every_visible_option_has_help() -> None:
    for _, command in commands_of(main):
        assert command.help
        assert all(o.hidden or o.help for o in options_of(command))


def test_join_is_hidden() -> None:
    assert "--join" not in call("run", "--help").stdout


def test_bare_command_shows_help_and_is_refused() -> None:
    result = call()

    assert result.exit_code == 2
    assert "Commands:" in result.stderr
    assert result.stdout == ""


def test_version_is_data() -> None:
    assert call("--version").stdout.startswith("rowmill ")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("rnu",), "No such command `rnu`"),
        (("run", "--limt", "3"), "No such option"),
        (("run", "--limit", "0"), "`--limit`"),
        (("status",), "Missing argument `OUT`"),
        (("export", "out"), "give either `-o FILE` or `--to ADDRESS`"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(args: tuple[str, ...], sentence: str) -> None:
    result = call(*args)

    assert result.exit_code == 2
    assert result.stderr.startswith("rowmill: ")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
    assert "--help" in result.stderr


BAD_JOBS = {
    "syntax": ("source = \n", "not valid TOML at line 1"),
    "encoding": ("prompt = '\udcff'", "line 1 is not UTF-8"),
    "unknown_key": ("promt = 'x'", "did you mean `prompt`?"),
    "unknown_table": ("[samplig]", "did you mean `sampling`?"),
    "wrong_place": ("max_tokens = 5", "did you mean `sampling.max_tokens`?"),
    "wrong_type": ("[sampling]\nmax_tokens = '5'", "expected a whole number above 0"),
    "out_of_range": ("[sampling]\ntop_p = 7", "expected a number above 0 and at most 1"),
    "engine_text": ("engine = 'echo'", "`engine` is a string; expected a table"),
    "choice": ("[validate]\ntoo_long = 'cut'", "expected one of `error`, `truncate_left`"),
    "exclusive": ("prompt = 'a'\nprompt_jinja = 'b'", "exclude each other"),
    "unknown_engine": ("[engine]\nname = 'ekko'", "unknown engine `ekko`"),
}


@pytest.mark.parametrize("name", BAD_JOBS)
@pytest.mark.parametrize("command", ["run", "check"])
def test_bad_job_file_is_refused_in_words(tmp_path: Path, name: str, command: str) -> None:
    text, sentence = BAD_JOBS[name]
    file, output = tmp_path / "job.toml", tmp_path / "out"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    engine = [] if "engine" in name else ["--engine", "echo"]

    result = call(command, str(file), "-o", str(output), *engine)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"rowmill: {file}: ")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not output.exists()


def test_missing_input_and_output_are_named_together() -> None:
    result = call("run", "--engine", "echo")

    assert result.exit_code == 2
    assert "no input" in result.stderr
    assert "no output" in result.stderr


def test_two_job_files_are_refused() -> None:
    result = call("run", "a.toml", "b.toml")

    assert result.exit_code == 2
    assert "one job file at a time; got `a.toml`, `b.toml`" in result.stderr


def test_refusal_in_json_is_one_object_on_stdout(tmp_path: Path) -> None:
    result = call("run", str(tmp_path / "absent.toml"), "--json")

    record = json.loads(result.stdout)
    assert record["exit_code"] == result.exit_code == 2
    assert (record["exit"], record["error"]) == ("refused", "BadJob")
    assert "there is no such job file" in record["mistakes"][0]


def front_that_raises(error: BaseException) -> Front:
    @click.command()
    @json_option
    @debug_option
    def fail() -> None:
        raise error

    return Front("front", commands={"fail": fail})


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (BadJob(where="job", mistakes=["a", "b"]), 2, "job: 2 mistakes\n  - a\n  - b"),
        (EngineDied(reason="no memory"), 3, "no memory"),
        (StorageError(path="out", reason="No space left"), 3, "No space left"),
        (
            InvalidRow(reason="x"),
            70,
            "this is a bug of rowmill, not of your job: InvalidRow: x",
        ),
        (ValueError("a\nb"), 70, "ValueError: a b; run again with `--debug`"),
        (BrokenPipeError(), 70, "BrokenPipeError"),
        (EOFError(), 70, "EOFError"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_whatever_is_raised_is_a_sentence_and_a_code(
    error: BaseException, code: int, sentence: str
) -> None:
    result = CliRunner().invoke(front_that_raises(error), ["fail"])

    assert result.exit_code == code
    assert code in EXITS
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback_and_the_sentence() -> None:
    result = CliRunner().invoke(front_that_raises(ValueError("x")), ["fail", "--debug"])

    assert result.exit_code == 70
    assert "Traceback" in result.stderr
    assert "rowmill: this is a bug" in result.stderr


def test_summary_in_json_has_counts_that_add_up() -> None:
    summary = Summary(
        total=9,
        ok=4,
        failed=3,
        not_done=2,
        errors=[("invalid", "x", 3)],
        exit_code=5,
        output="o",
    )

    record = json.loads(json.dumps(summary_record(summary)))

    assert record["total"] == record["ok"] + record["error"] + record["not_done"]
    assert record["errors"] == [{"kind": "invalid", "sentence": "x", "rows": 3}]
    assert record["exit"] == "stopped_early"


def test_a_traceback_is_never_shown_by_the_process_either(tmp_path: Path) -> None:
    done = process("run", str(tmp_path / "absent.toml"))

    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1


def test_any_text_can_be_said_in_an_ascii_locale(tmp_path: Path) -> None:
    name = "\u7530\U0001f469\u200d\U0001f4bb\u202e.toml"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    for extra in (locale, {**locale, "PYTHONIOENCODING": "ascii"}):
        done = process("run", str(tmp_path / name), **extra)

        assert done.returncode == 2
        assert b"there is no such job file" in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_reader_that_left_is_no_error() -> None:
    code = "from rowmill.cli.voice import out\nfor _ in range(20000): out('x' * 99)"
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (0, b"")


def test_no_colour_without_a_terminal() -> None:
    assert b"\x1b" not in process("--help", FORCE_COLOR="0").stdout


def test_out_writes_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    out("x")

    assert capsys.readouterr() == ("x\n", "")


def test_rows_in_rows_out(tmp_path: Path) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"text": "one"}\n{"text": "two"}\n{"other": 3}\n')
    output = tmp_path / "out"
    args = ["run", str(rows), "-o", str(output), "--engine", "echo", "--prompt", "{text}"]

    done = process(*args, "--json")

    record = json.loads(done.stdout)
    assert done.returncode == record["exit_code"] == 4
    assert (record["total"], record["ok"], record["error"]) == (3, 2, 1)
    assert f"look: rowmill status {output}".encode() in done.stderr


@pytest.mark.parametrize("args", [("status",), ("trace", "7"), ("export", "-o", "x.jsonl")])
def test_looking_where_no_run_is_is_refused(tmp_path: Path, args: tuple[str, ...]) -> None:
    command, *rest = args

    result = call(command, str(tmp_path / "absent"), *rest, "--json")

    assert result.exit_code == 2
    assert json.loads(result.stdout)["exit"] == "refused"
    assert "holds no run" in result.stderr
    assert list(tmp_path.iterdir()) == []
