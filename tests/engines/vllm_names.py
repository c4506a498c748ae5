"""vLLM's engine arguments -> the text of `vllm_arguments.py`'s list: `python -m tests.engines.vllm_names >> FILE`.

Without vLLM installed the lists of several versions are joined from unpacked wheels: give their folders.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import textwrap
from pathlib import Path

SOURCE = Path("engine", "arg_utils.py")


def names_in(folder: Path) -> set[str]:
    """Fields of `EngineArgs` in the vLLM at `folder`, read from its text: to import it takes seconds."""
    tree = ast.parse((folder / SOURCE).read_text("utf-8"))
    fields = {
        statement.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "EngineArgs"
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    return {name for name in fields if not name.startswith("_")}


def installed() -> Path:
    """Folder of the vLLM that is installed."""
    spec = importlib.util.find_spec("vllm")
    folders = (spec.submodule_search_locations if spec else None) or []
    return Path(next(iter(folders)))


if __name__ == "__main__":
    folders = [Path(word) for word in sys.argv[1:]] or [installed()]
    found = sorted(set().union(*map(names_in, folders)))
    sys.stdout.write(textwrap.indent(textwrap.fill(" ".join(found), 92), "    ") + "\n")
