"""The shape of the source: sizes, names, imports. Layers are `.importlinter`'s.

A function's size is its lines from `def` to its last one, decorators and docstring not counted.
"""

from __future__ import annotations

import ast
import re
import statistics
import tomllib
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FILES = sorted((SOURCE / "rowmill").rglob("*.py"))
HEAVY = {
    "torch",
    "vllm",
    "sglang",
    "transformers",
    "ray",
    "xllamacpp",
    "aiohttp",
    "gguf",
    "pyarrow",
    "jsonschema_rs",
}
BANNED = {
    *(
        "util",
        "utils",
        "helper",
        "helpers",
        "common",
        "misc",
        "manager",
        "handler",
        "processor",
    ),
    *("base", "data", "info", "impl", "wrapper"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {path: ast.parse(path.read_text("utf-8")) for path in FILES}
MODULES = {module_name(path): path for path in FILES}


def functions() -> Iterator[tuple[str, Function]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def num_lines(function: Function) -> int:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def words(name: str) -> set[str]:
    """The words of a snake or camel name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def imports(tree: ast.AST) -> Iterator[str]:
    """Absolute names that an import statement anywhere in `tree` may mean."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported."""
    for node in body:
        if isinstance(node, Function) or is_type_checking(node):
            continue
        yield node
        for block in ("body", "orelse", "finalbody"):
            yield from run_at_import(getattr(node, block, []))


def test_no_file_is_over_400_lines() -> None:
    sizes = {str(path): len(path.read_text("utf-8").splitlines()) for path in FILES}

    assert {path: size for path, size in sizes.items() if size > 400} == {}


def test_no_function_is_over_60_lines() -> None:
    sizes = {name: num_lines(function) for name, function in functions()}

    assert {name: size for name, size in sizes.items() if size > 60} == {}


def test_most_functions_are_short() -> None:
    sizes = sorted(num_lines(function) for _, function in functions())

    assert statistics.median(sizes) <= 10
    assert sizes[int(len(sizes) * 0.9)] <= 30


def test_names_say_what_a_thing_is() -> None:
    names = [f"{name}: {part}" for name in MODULES for part in name.split(".")]
    for path, tree in TREES.items():
        names += [
            f"{path.relative_to(ROOT)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, Function | ast.ClassDef)
        ]

    assert [name for name in names if words(name.split(": ")[1]) & BANNED] == []


@pytest.mark.parametrize("name", ["row_utils", "BaseEngine", "_http_handler", "RunInfo"])
def test_a_banned_word_is_seen_in_any_spelling(name: str) -> None:
    assert words(name) & BANNED


def test_every_module_begins_with_a_sentence() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path, tree in TREES.items()
        if not (ast.get_docstring(tree, clean=False) or "").split("\n")[0].strip()
    ]

    assert silent == []


def test_every_folder_of_modules_is_a_package() -> None:
    """Import checkers and wheels pass over folders without `__init__.py`."""
    folders = {path.parent for path in FILES}

    assert [str(folder) for folder in folders if folder / "__init__.py" not in TREES] == []


def test_no_heavy_library_is_imported_with_a_module() -> None:
    heavy = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path, tree in TREES.items()
        for node in run_at_import(tree.body)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imports(node)
        if name.split(".")[0] in HEAVY
    ]

    assert heavy == []


def test_imports_make_no_cycle() -> None:
    """Late imports and those for types count as well."""
    graph = {
        name: {found for found in imports(TREES[path]) if found in MODULES and found != name}
        for name, path in MODULES.items()
    }

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def pyproject() -> dict[str, dict[str, dict[str, list[str]]]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_extra_that_an_error_names_exists() -> None:
    named = {
        keyword.value.value
        for tree in TREES.values()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).split(".")[-1] == "MissingExtra"
        for keyword in call.keywords
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Constant)
    }

    assert named - {""} <= set(pyproject()["project"]["optional-dependencies"])


def names_of(lines: Iterable[str]) -> set[str]:
    found = (re.split(r"[\[>=;]", line)[0].strip().lower() for line in lines)
    return {name.replace("_", "-") for name in found if name and not name.startswith("#")}


def pins(file: str) -> set[str]:
    return names_of((ROOT / "requirements" / file).read_text("utf-8").splitlines())


def test_every_dependency_is_pinned() -> None:
    project = pyproject()["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())

    assert names_of([*project["dependencies"], *extras]) - {"rowmill"} <= pins("lock.txt")


def test_the_environment_of_vllm_has_all_that_is_needed() -> None:
    """It is installed without asking what packages depend on."""
    assert names_of(pyproject()["project"]["dependencies"]) <= pins("vllm-cpu.txt")


def test_pins_name_no_place_to_download_from() -> None:
    lock = (ROOT / "requirements/lock.txt").read_text("utf-8")

    assert [line for line in lock.splitlines() if "://" in line or line.startswith("-")] == []
