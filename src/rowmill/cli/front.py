"""Whatever a command raises -> one sentence on stderr and an exit code. Never a traceback unasked.

Knows nothing of: what the commands do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from rowmill.cli.voice import out_json, say, soften
from rowmill.errors import RowmillError

DEBUG, JSON = "rowmill.debug", "rowmill.json"
INTERRUPTED, BUG = 130, 70
MAX_SHOWN = 300
EXITS = {
    0: "all_ok",
    2: "refused",
    3: "died",
    4: "some_failed",
    5: "stopped_early",
    BUG: "bug",
    INTERRUPTED: "interrupted",
    143: "drained",
}
"""Exit codes as words, for `--json`."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _flag(name: str, key: str, help_text: str) -> Decorator:
    """A flag of every command, kept in the context, where `Front` finds it when things go wrong."""

    def keep(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        ctx.meta[key] = value

    return click.option(
        name, is_flag=True, is_eager=True, expose_value=False, callback=keep, help=help_text
    )


debug_option = _flag("--debug", DEBUG, "Show the traceback of an error.")
json_option = _flag("--json", JSON, "Write one JSON object to stdout, for programs.")


def wants_json() -> bool:
    """Whether the command in progress was given `--json`."""
    return bool(click.get_current_context().meta.get(JSON))


class Front(click.Group):
    """A group of commands that return their exit code, or None for 0."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        soften(sys.stdout, sys.stderr)
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else 0
        except click.ClickException as error:
            say(f"rowmill: {_usage_sentence(error)}")
            code = error.exit_code
        except click.Abort:
            code = INTERRUPTED
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt as error:
            say("rowmill: interrupted; run the same command again to resume")
            return int(getattr(error, "exit_code", INTERRUPTED))
        except Exception as error:
            return _told(error, ctx)  # the last place where a user is spared a traceback


def _usage_sentence(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    text = error.format_message().rstrip(".").replace("'", "`")
    return f"{text}; see `{ctx.command_path} --help`" if ctx is not None else text


def _told(error: Exception, ctx: click.Context) -> int:
    """Say what went wrong; the exit code."""
    if ctx.meta.get(DEBUG):
        import traceback

        say("".join(traceback.format_exception(error)).rstrip())
    ours = isinstance(error, RowmillError) and error.exit_code != BUG
    code = error.exit_code if isinstance(error, RowmillError) else BUG
    sentence = str(error) if ours else _bug_sentence(error)
    say(f"rowmill: {sentence}")
    if ctx.meta.get(JSON):
        mistakes = getattr(error, "fields", {}).get("mistakes", [sentence])
        kind = type(error).__name__
        out_json(
            {
                "exit_code": code,
                "exit": EXITS.get(code, "bug"),
                "error": kind,
                "mistakes": mistakes,
            }
        )
    return code


def _bug_sentence(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return (
        f"this is a bug of rowmill, not of your job: {shown}; run again with `--debug` for the"
        " traceback and report it; finished rows are kept, the same command resumes"
    )
