"""A small API server on 127.0.0.1, for the real `kubectl`: keeps objects, runs nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

GROUPS = {"v1": "/api/v1", "batch/v1": "/apis/batch/v1"}
GROUPS |= {"scheduling.k8s.io/v1": "/apis/scheduling.k8s.io/v1"}
RESOURCES = {
    "v1": [("configmaps", "ConfigMap", True), ("pods", "Pod", True), ("events", "Event", True)],
    "batch/v1": [("jobs", "Job", True)],
    "scheduling.k8s.io/v1": [("priorityclasses", "PriorityClass", False)],
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Api:
    """What is kept."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        """Path below the server -> object."""
        self.logs: dict[str, str] = {}
        """Pod -> what it said."""
        self.refusal = ""
        """What every creation is refused with, if anything."""

    def put(self, thing: dict[str, Any]) -> None:
        """Keep an object, as if its controller had made it."""
        place = next(
            f"{GROUPS[version]}/namespaces/default/{plural}"
            for version, resources in RESOURCES.items()
            for plural, kind, _ in resources
            if kind == thing["kind"]
        )
        self.objects[f"{place}/{thing['metadata']['name']}"] = thing

    def kinds(self) -> list[str]:
        """Kinds of what is there."""
        return sorted(str(thing["kind"]) for thing in self.objects.values())


class Answers(BaseHTTPRequestHandler):
    """What the server says."""

    api: Api

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        found = _found(self.api, address.path, parse_qs(address.query))
        if isinstance(found, str):
            self._send(200, found.encode(), "text/plain")
        else:
            self._json(200 if found else 404, found or _status(404, "NotFound", "not found"))

    def do_POST(self) -> None:
        thing = self._body()
        if self.api.refusal:
            self._json(403, _status(403, "Forbidden", self.api.refusal))
            return
        path = urlsplit(self.path).path
        thing["metadata"].setdefault("namespace", "default")
        self.api.objects[f"{path}/{thing['metadata']['name']}"] = thing
        self._json(201, thing)

    def do_PATCH(self) -> None:
        self._body()
        self._json(200, self.api.objects[urlsplit(self.path).path])

    def do_DELETE(self) -> None:
        self._body()
        self.api.objects.pop(urlsplit(self.path).path, None)
        self._json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")

    def _json(self, code: int, value: Any) -> None:
        self._send(code, json.dumps(value).encode(), "application/json")

    def _send(self, code: int, content: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Api, Path]]:
    """A server, and the file that tells `kubectl` of it."""
    api = Api()

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Ours", (Answers,), {"api": api}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = folder / "kubeconfig"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config.write_text(json.dumps(_config(url)))
    try:
        yield api, config
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _config(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
        "current-context": "test",
    }


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**head, "code": code, "reason": reason, "message": message}


def _found(api: Api, path: str, query: dict[str, list[str]]) -> Any:
    """What a path holds; a text for logs, None for nothing."""
    if path.endswith("/log"):
        return api.logs.get(path.split("/")[-2], "")
    return _discovered(path) or api.objects.get(path) or _listed(api, path, query)


def _discovered(path: str) -> Any:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
    if path == "/openapi/v3":
        pages = {
            place[1:]: {"serverRelativeURL": f"/openapi/v3{place}"} for place in GROUPS.values()
        }
        return {"paths": pages}
    for version, place in GROUPS.items():
        if path == place:
            return _resources(version)
        if path == f"/openapi/v3{place}":
            return _openapi(version, place)
    return None


def _listed(api: Api, path: str, query: dict[str, list[str]]) -> Any:
    plurals = {plural: kind for rows in RESOURCES.values() for plural, kind, _ in rows}
    kind = plurals.get(path.rpartition("/")[2])
    if kind is None:
        return None
    items = [t for place, t in api.objects.items() if place.startswith(f"{path}/")]
    wanted = dict(
        pair.split("=") for pair in query.get("labelSelector", [""])[0].split(",") if pair
    )
    items = [t for t in items if wanted.items() <= (t["metadata"].get("labels") or {}).items()]
    version = next(v for v, rows in RESOURCES.items() if kind in [row[1] for row in rows])
    return {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": items}


def _groups() -> list[dict[str, Any]]:
    found = []
    for full in GROUPS:
        group, _, version = full.partition("/")
        if version:
            told = {"groupVersion": full, "version": version}
            found.append({"name": group, "versions": [told], "preferredVersion": told})
    return found


def _resources(version: str) -> dict[str, Any]:
    found = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": is_namespaced,
            "kind": kind,
            "verbs": VERBS,
        }
        for plural, kind, is_namespaced in RESOURCES[version]
    ]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
    return {**head, "resources": found}


def _openapi(version: str, place: str) -> dict[str, Any]:
    """As much as `kubectl` looks at before it leaves checking to the server."""
    group, _, number = version.rpartition("/")
    paths = {}
    for plural, kind, _ in RESOURCES[version]:
        told = {"group": group, "version": number, "kind": kind}
        parameters = [{"name": name, "in": "query"} for name in ("fieldValidation", "dryRun")]
        patch = {"x-kubernetes-group-version-kind": told, "parameters": parameters}
        paths[f"{place}/namespaces/{{namespace}}/{plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "paths": paths}
