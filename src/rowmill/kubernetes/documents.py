"""Documents <-> YAML text; whatever is read or written is plain dicts and lists.

Promises: a text over several lines stands as one; nothing in a file is run.
Knows nothing of: what documents mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rowmill.errors import BadJob, MissingExtra

Document = dict[str, Any]


def as_yaml(documents: Sequence[Document], reasons: Mapping[str, str]) -> str:
    """The documents as one file, what was derived told above them."""
    yaml = _yaml()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]
        """With texts of several lines as they are."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    head = "".join(
        f"# {name}: {' '.join(reason.split())}\n" for name, reason in reasons.items()
    )
    return head + str(yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=110))


def read_documents(path: str) -> list[Document]:
    """The documents of a YAML or JSON file.

    Raises:
        BadJob: it cannot be read, or holds something else.
    """
    yaml = _yaml()
    try:
        found = [one for one in yaml.safe_load_all(Path(path).read_text("utf-8")) if one]
    except (OSError, UnicodeDecodeError) as error:
        raise BadJob(where=path, mistakes=[f"cannot be read: {error}"]) from error
    except yaml.YAMLError as error:
        raise BadJob(where=path, mistakes=[" ".join(str(error).split())]) from error
    if not all(isinstance(one, dict) for one in found):
        raise BadJob(where=path, mistakes=["is no file of Kubernetes objects"])
    return found


def need_extra() -> None:
    """See that what `rowmill k8s` needs is installed.

    Raises:
        MissingExtra: it is not.
    """
    import importlib.util

    for name in ("yaml", "lightkube", "kubernetes_validate"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(what=f"`{name}`", extra="k8s")


def _yaml() -> Any:
    need_extra()
    import yaml

    return yaml
