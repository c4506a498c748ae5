"""`import rowmill`: the public names, and nothing heavy behind them until they are used."""

import subprocess
import sys

import pytest

import rowmill

HEAVY = (
    "torch",
    "ray",
    "vllm",
    "transformers",
    "pydantic",
    "numpy",
    "msgspec",
    "rich",
    "jinja2",
)
HEAVY_FOR_HELP = (*HEAVY, "tokenizers", "obstore", "aiohttp", "xllamacpp", "rowmill.config")


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nsys.stdout.write('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


def test_names_are_sorted_and_each_has_a_home() -> None:
    assert rowmill.__all__ == sorted(rowmill.__all__)
    assert set(rowmill.__all__) == {*rowmill._HOMES, "__version__"}
    assert dir(rowmill) == rowmill.__all__


@pytest.mark.parametrize("name", rowmill.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(rowmill, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="`rowmill` has no attribute `nonsense`"):
        rowmill.nonsense  # noqa: B018 - the access is the test


def test_import_brings_nothing_heavy() -> None:
    assert modules_after("import rowmill").isdisjoint(HEAVY)


def test_help_brings_click_alone() -> None:
    statement = "from rowmill.cli import main; main(['run', '--help'], standalone_mode=False)"

    modules = modules_after(statement)

    assert "click" in modules
    assert modules.isdisjoint(HEAVY_FOR_HELP)


def test_job_file_brings_no_engine_library() -> None:
    modules = modules_after("import rowmill; rowmill.load_job")

    assert "pydantic" in modules
    assert modules.isdisjoint(("torch", "ray", "vllm", "transformers", "xllamacpp", "aiohttp"))
