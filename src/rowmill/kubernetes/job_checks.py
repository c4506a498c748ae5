"""A Job -> what its schema lets through, and the API server does not.

Promises: each mistake with the path of its field.
Knows nothing of: other kinds.
Source: the API reference of Kubernetes 1.33 for allowed values; its validation of Jobs for rules between fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rowmill.kubernetes.documents import Document
from rowmill.kubernetes.fields import at_path, enum_mistakes, name_mistakes
from rowmill.kubernetes.pod_checks import pod_mistakes

JOB_ENUMS = {
    "spec.completionMode": ("Indexed", "NonIndexed"),
    "spec.podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
}
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
CONDITIONS = ("True", "False", "Unknown")
MOST_RULES = 20


def job_mistakes(document: Document) -> Iterator[str]:
    """Rules of a Job that its schema does not carry."""
    yield from enum_mistakes(document, JOB_ENUMS)
    yield from name_mistakes(document, most=63)
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return
    yield from _counts(spec)
    yield from _indexed(spec)
    yield from _failure_policy(spec)
    template = at_path(spec, "template")
    if isinstance(template, Mapping):
        restart = at_path(template, "spec.restartPolicy")
        path = "spec.template.spec.restartPolicy"
        if restart is None or restart == "Always":
            yield f"{path}: `{restart or 'Always'}` is not for a Job; allowed are `Never`, `OnFailure`"
        elif restart != "Never" and spec.get("podFailurePolicy") is not None:
            yield f"{path}: `{restart}`, and `spec.podFailurePolicy` needs `Never`"
        yield from pod_mistakes(template, "spec.template.")


def _whole(spec: Mapping[str, Any], name: str) -> int | None:
    value = spec.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _counts(spec: Mapping[str, Any]) -> Iterator[str]:
    for name in (
        *("completions", "parallelism", "backoffLimit", "backoffLimitPerIndex"),
        *("maxFailedIndexes", "ttlSecondsAfterFinished", "activeDeadlineSeconds"),
    ):
        value = _whole(spec, name)
        least = 1 if name in ("activeDeadlineSeconds", "completions") else 0
        if value is not None and value < least:
            yield f"spec.{name}: `{value}`; {least} is the least"


def _indexed(spec: Mapping[str, Any]) -> Iterator[str]:
    is_indexed = spec.get("completionMode") == "Indexed"
    completions, parallelism = _whole(spec, "completions"), _whole(spec, "parallelism")
    if is_indexed and spec.get("completions") is None:
        yield "spec.completions: an Indexed Job says how many indexes it has"
    if completions is not None and parallelism is not None and parallelism > completions:
        yield f"spec.parallelism: `{parallelism}`, and there are {completions} indexes (`spec.completions`)"
    per_index = spec.get("backoffLimitPerIndex") is not None
    if per_index and not is_indexed:
        yield "spec.backoffLimitPerIndex: needs `spec.completionMode: Indexed`"
    most = _whole(spec, "maxFailedIndexes")
    if most is not None and not per_index:
        yield "spec.maxFailedIndexes: needs `spec.backoffLimitPerIndex`"
    if most is not None and completions is not None and most > completions:
        yield f"spec.maxFailedIndexes: `{most}`, and there are {completions} indexes (`spec.completions`)"
    if spec.get("successPolicy") is not None and not is_indexed:
        yield "spec.successPolicy: needs `spec.completionMode: Indexed`"
    if spec.get("podFailurePolicy") is not None and spec.get("podReplacementPolicy") not in (
        None,
        "Failed",
    ):
        yield "spec.podReplacementPolicy: with `spec.podFailurePolicy` it is `Failed`"


def _failure_policy(spec: Mapping[str, Any]) -> Iterator[str]:
    rules = at_path(spec, "podFailurePolicy.rules")
    if not isinstance(rules, list):
        return
    names = {
        container.get("name")
        for container in at_path(spec, "template.spec.containers") or ()
        if isinstance(container, Mapping)
    }
    if len(rules) > MOST_RULES:
        yield f"spec.podFailurePolicy.rules: {len(rules)} of them; {MOST_RULES} at most"
    for number, rule in enumerate(rules):
        at = f"spec.podFailurePolicy.rules.{number}."
        if not isinstance(rule, Mapping):
            continue
        yield from enum_mistakes(rule, {"action": ACTIONS}, at)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield f"{at}action: `FailIndex` needs `spec.backoffLimitPerIndex`"
        if (rule.get("onExitCodes") is None) == (rule.get("onPodConditions") is None):
            yield f"{at}onExitCodes: a rule has this or `onPodConditions`, one of them"
        yield from _exit_codes(rule, at, names)
        for place, condition in enumerate(rule.get("onPodConditions") or ()):
            inner = f"{at}onPodConditions.{place}."
            yield from enum_mistakes(condition, {"status": CONDITIONS}, inner)


def _exit_codes(rule: Mapping[str, Any], at: str, names: set[Any]) -> Iterator[str]:
    codes = rule.get("onExitCodes")
    if not isinstance(codes, Mapping):
        return
    at += "onExitCodes."
    yield from enum_mistakes(codes, {"operator": OPERATORS}, at)
    values = codes.get("values") or []
    if codes.get("operator") == "In" and 0 in values:
        yield f"{at}values: 0 is no failure"
    if isinstance(values, list) and len(set(map(str, values))) < len(values):
        yield f"{at}values: a code stands there twice"
    whose = codes.get("containerName")
    if whose is not None and whose not in names:
        yield f"{at}containerName: there is no container `{whose}`"
