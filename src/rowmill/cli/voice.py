"""Words -> stdout and stderr, whatever the locale and whoever listens.

Promises: a character the terminal cannot show is escaped; a reader that went away ends no run.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO


def soften(*streams: TextIO) -> None:
    """Make streams escape what their encoding lacks, instead of failing (`LANG=C`)."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """A line for people, on stderr."""
    _write(sys.stderr, f"{text}\n")


def out(text: str) -> None:
    """A line of what was asked for, on stdout."""
    _write(sys.stdout, f"{text}\n")


def out_json(value: Any) -> None:
    """A value as one line of ASCII JSON, on stdout."""
    out(json.dumps(value, allow_nan=False))


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Let what is still written, and the flush at exit, go nowhere: the reader has left, the run goes on."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
