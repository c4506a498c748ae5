"""Names and what is registered under them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rowmill import engines, errors, registry
from rowmill.config import EngineConfig

PLUGIN = """
from rowmill.rows import Limits, Outcome
def declare(engine):
    return Limits(seats=3, about="a plugin")
def open(engine):
    raise NotImplementedError
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rowmill_plugin-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: rowmill-plugin\nVersion: 1\n"
    )
    (folder / "entry_points.txt").write_text(
        "[rowmill.engines]\nmine = rowmill_plugin_engine\n"
    )
    (tmp_path / "rowmill_plugin_engine.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)


def test_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(errors.UnknownName, match="did you mean `llamacpp`"):
        engines.declare(EngineConfig(name="lamacpp"))


@pytest.mark.usefixtures("plugin")
def test_plugin_is_found_by_its_entry_point() -> None:
    assert {"mine", "echo", "http", "llamacpp"} <= set(registry.names("engines"))
    assert "a plugin" == engines.declare(EngineConfig(name="mine")).about
    assert [] == engines.check_options(EngineConfig(name="mine"))


def test_lookup_imports_one_module_and_no_library() -> None:
    code = (
        "import sys; from rowmill import registry; registry.load('engines', 'echo');"
        "bad = {'aiohttp', 'xllamacpp', 'rowmill.engines.http', 'rowmill.engines.llamacpp'};"
        "sys.exit(str(bad & set(sys.modules)) if bad & set(sys.modules) else 0)"
    )
    source = str(Path(registry.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}, check=False)

    assert 0 == done.returncode


def test_a_worker_on_a_disk_needs_neither_network_nor_images_to_begin() -> None:
    """What few jobs use is imported when one does: it takes time, and may be missing where the rest is there."""
    code = (
        "import sys, rowmill.cli, rowmill.executors.local, rowmill.executors.worker, rowmill.engines.child;"
        "bad = {'ssl', 'http.client', 'asyncio', 'PIL', 'soundfile', 'pynvml', 'prometheus_client', 'opentelemetry'};"
        "sys.exit(str(bad & set(sys.modules)) if bad & set(sys.modules) else 0)"
    )
    source = str(Path(registry.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": source},
        check=False,
        capture_output=True,
        text=True,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_every_built_in_can_be_imported_without_its_library() -> None:
    for name in registry.BUILT_IN["engines"]:
        adapter = registry.load("engines", name)
        assert callable(adapter.open)
        assert callable(adapter.declare)
        assert callable(adapter.check_options)


def test_empty_name_follows_from_the_url() -> None:
    assert "http" == engines.resolve(EngineConfig(url="http://127.0.0.1:1")).name
    assert "bytes" == engines.resolve(EngineConfig(name="echo")).tokenizer
