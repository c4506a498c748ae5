"""Settings go into a job file; everything else of it stays."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rowmill.tune.writing import edited, write

CHOSEN = {"seats": (128, "tune: 1,000 tokens/s"), "front_end": ("direct", "tune: a word")}

FILES = {
    "a table": '# mine\nsource = "a"\n[engine] # here\nname = "echo"  # why\nseats = 4 # a guess\n\n[run]\nlimit = 3\n',
    "dotted keys": 'engine.name = "echo"\nengine.seats = 4 # a guess\nsource = "a"\n',
    "no engine": 'source = "a" # end\n[run]\nlimit = 3',
    "an empty table": "[engine]\n[run]\nlimit = 3\n",
    "a table of a table": '[engine]\nname = "vllm"\n[engine.loras]\nseats = "a/folder"\n',
    "windows": 'source = "a"\r\n[engine]\r\nseats = 1\r\n',
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_only_the_settings_change_and_comments_stay(text: str) -> None:
    new = edited(text, CHOSEN)

    assert new is not None
    wanted = tomllib.loads(text)
    wanted.setdefault("engine", {}).update({name: value for name, (value, _) in CHOSEN.items()})
    assert tomllib.loads(new) == wanted
    for line in text.splitlines():
        assert line in new
    assert "# tune: 1,000 tokens/s" in new
    assert ("\r\n" in text) == ("\r\n" in new)


def test_what_was_there_stays_above_as_a_comment() -> None:
    new = edited("[engine]\nseats = 4 # a guess\n", {"seats": (8, "better")})

    assert new == "[engine]\n# seats = 4 # a guess\nseats = 8  # better\n"


@pytest.mark.parametrize(
    "text",
    [
        'engine = { name = "echo" }\n',
        '"engine".seats = 4\n',
        '[engine]\nx = """\n[engine]\n"""\nseats = 1',
    ],
)
def test_a_file_that_is_spelt_otherwise_is_right_or_left_alone(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)

    is_written = write(path, CHOSEN)

    found, wanted = tomllib.loads(path.read_text()), tomllib.loads(text)
    if is_written:
        wanted["engine"].update({name: value for name, (value, _) in CHOSEN.items()})
    assert found == wanted
    assert list(tmp_path.iterdir()) == [path]
