"""A field of a document -> a mistake as `PATH: what`, by the schema of a version or by a list of allowed values.

Promises: mistakes name paths and short values, never whole objects.
Knows nothing of: what kinds of documents there are.
Source: schemas of `kubernetes-validate`, which are those of the API servers; they carry no enumerations.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rowmill.kubernetes.documents import Document


def schema_mistakes(document: Document, version: str, at: str = "") -> Iterator[str]:
    """What the schema of the cluster's version refuses; the first mistake, as the library finds no more."""
    import kubernetes_validate as schemas

    try:
        schemas.validate(document, version, strict=True)
    except schemas.ValidationError as error:
        yield from _sentences(error, at)
    except schemas.SchemaNotFoundError:
        kind, api = document["kind"], document["apiVersion"]
        yield f"{at}kind: Kubernetes {version} has no `{kind}` in `{api}`"


def _sentences(error: Any, at: str) -> Iterator[str]:
    """The library's mistake by its parts: its own words may quote whole objects."""
    yield _sentence(error, at)
    if error.validator == "required":
        # A needed field that is missing may stand there under a wrong name.
        known = list(error.schema.get("properties", {}))
        for name in sorted(set(error.instance) - set(known)):
            path = at + _joined([*map(str, error.absolute_path), name])
            yield f"{path}: there is no such field{_hint(name, known)}"


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _sentence(error: Any, at: str) -> str:
    path = at + _joined([str(part) for part in error.absolute_path])
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        return (
            f"{_joined([path, unknown[0]])}: there is no such field{_hint(unknown[0], known)}"
        )
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"{_joined([path, missing[0]])}: is needed and not there"
    if error.validator == "type":
        wanted = error.validator_value
        names = [wanted] if isinstance(wanted, str) else [w for w in wanted if w != "null"]
        told = " or ".join(names)
        return f"{path}: is {_told(error.instance)}, and is to be {told}"
    return f"{path}: {_told(error.instance)} does not fit"


def _joined(parts: Sequence[str]) -> str:
    return ".".join(part for part in parts if part)


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"the text `{value}`" if isinstance(value, str) else f"`{str(value).lower()}`"


def at_path(document: Any, path: str) -> Any:
    """The value at a path of names; None where there is none."""
    for name in path.split("."):
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def enum_mistakes(
    document: Any, enums: Mapping[str, Sequence[str]], at: str = ""
) -> Iterator[str]:
    """Values that are none of the allowed ones."""
    for path, allowed in enums.items():
        value = at_path(document, path)
        if value is not None and value not in allowed:
            known = ", ".join(f"`{one}`" for one in allowed)
            yield f"{at}{path}: `{value}`; allowed are {known}{_hint(str(value), allowed)}"


def name_mistakes(document: Document, *, most: int) -> Iterator[str]:
    """A name that the API server refuses."""
    name = at_path(document, "metadata.name")
    if name is None and at_path(document, "metadata.generateName") is None:
        yield "metadata.name: is needed and not there"
    elif name is not None and not (
        isinstance(name, str)
        and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
        and len(name) <= most
    ):
        yield f"metadata.name: `{name}`: lower case letters, digits and `-`, {most} at most, no `_`"
