"""`run-batch -i URL -o URL`: batch files come by GET and go by PUT, whole or not at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.batch.by_url import Place, check_urls, download, input_place, output_place, upload
from rowmill.engines.retry import Policy
from rowmill.errors import BadOutput, BadSource, StorageError
from tests.cases.command import DIED, OK, SOME_FAILED, Finished, rowmill

aiohttp_web = pytest.importorskip("aiohttp.web")

AT_ONCE = Policy(max_attempts=3, first_wait_s=0.001, max_wait_s=5.0)
LINE = b'{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": {"prompt": "row"}}\n'
FILE = b"".join(LINE % name for name in (b"a", b"b", b"c"))


class FileServer:
    """A real server on 127.0.0.1: what it gives, what it was given, and what goes wrong on the way."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        """Of the next requests, one each."""
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._is_up.wait(30)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        app = aiohttp_web.Application(client_max_size=1 << 26)
        app.router.add_get("/{name:.*}", self._faulty(self._give))
        app.router.add_put("/{name:.*}", self._faulty(self._take))
        runner = aiohttp_web.AppRunner(app)
        await runner.setup()
        await aiohttp_web.TCPSite(runner, "127.0.0.1", 0).start()
        self._port = runner.addresses[0][1]
        self._is_up.set()
        await self._over.wait()
        await runner.cleanup()

    def _faulty(self, serve: Callable[..., Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def answer(request: Any) -> Any:
            self.asked.append((request.method, request.path_qs))
            self.headers.append(dict(request.headers))
            fault = self.faults.pop(0) if self.faults else ""
            if fault.isdigit():
                headers = {"Retry-After": "0"} if fault == "429" else {}
                return aiohttp_web.Response(
                    status=int(fault), text="key=secret", headers=headers
                )
            return await serve(request, fault)

        return answer

    async def _give(self, request: Any, fault: str) -> Any:
        content = self.files.get(request.match_info["name"])
        if content is None:
            raise aiohttp_web.HTTPNotFound
        if not fault:
            return aiohttp_web.Response(body=content)
        if fault == "no end":
            request.transport.write(b"HTTP/1.0 200 OK\r\n\r\n" + content[: len(content) // 2])
            request.transport.close()
            return aiohttp_web.Response()
        response = aiohttp_web.StreamResponse()
        if fault == "cut":
            response.content_length = len(content)
        else:
            response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        request.transport.close()
        return response

    async def _take(self, request: Any, fault: str) -> Any:
        if fault == "cut":
            request.transport.close()
            return aiohttp_web.Response()
        self.files[request.match_info["name"]] = await request.read()
        return aiohttp_web.Response(status=201)


@pytest.fixture
def server() -> Iterator[FileServer]:
    one = FileServer()
    try:
        yield one
    finally:
        one.close()


def batch(source: str, out: str, folder: Path, *options: str) -> Finished:
    words = ["-i", source, "-o", out, "--model", "m", "--engine", "echo", *options]
    return rowmill("run-batch", [*words, "--set", "engine.tokenizer=bytes"], cwd=folder)


def test_input_and_output_may_be_urls_and_their_keys_are_told_to_nobody(
    tmp_path: Path, server: FileServer
) -> None:
    server.files["in/rows"] = gzip.compress(FILE + b"7\n")
    source = f"{server.root}/in/rows?part=1&X-Amz-Signature=secret1"
    out = f"{server.root}/out/answers.jsonl?sig=secret2"

    first = batch(source, out, tmp_path)
    assert first.code == SOME_FAILED, first.stderr
    sent = server.files.pop("out/answers.jsonl")
    later = batch(source.replace("secret1", "secret3"), out, tmp_path)

    lines = [json.loads(line) for line in sent.splitlines()]
    assert ["a", "b", "c", None] == [line["custom_id"] for line in lines]
    assert (4, 0) == (first.told["asked"], later.told["asked"])
    assert (
        sent == server.files["out/answers.jsonl"] == (tmp_path / "answers.jsonl").read_bytes()
    )
    assert ["GET", "PUT", "PUT"] == [method for method, _ in server.asked]
    assert ("PUT", "/out/answers.jsonl?sig=secret2") == server.asked[1]
    told = [first.stderr, first.stdout, later.stderr]
    kept = [
        path.read_bytes().decode()
        for path in tmp_path.rglob("*")
        if path.is_file() and "input" not in str(path)
    ]
    assert not [text for text in (*told, *kept) if "secret" in text]


@pytest.mark.parametrize("fault", ["cut", "cut chunks", "503", "429"])
def test_a_download_that_fails_is_begun_again(
    tmp_path: Path, server: FileServer, fault: str
) -> None:
    server.files["rows.jsonl"] = FILE * 1000
    server.faults = [fault, fault]
    place = input_place(f"{server.root}/rows.jsonl?key=secret", 0, str(tmp_path / "out.jsonl"))
    told: list[str] = []

    download(place, told.append, AT_ONCE)

    assert FILE * 1000 == Path(place.file).read_bytes()
    assert (3, 2) == (len(server.asked), len(told))
    assert not [words for words in told if "secret" in words]


@pytest.mark.parametrize(
    ("faults", "words", "requests"),
    [
        (["cut"] * 3, "given up: after 3 attempts", 3),
        (["cut chunks"] * 3, "given up: after 3 attempts", 3),
        (["403"], "the server answers 403$", 1),
        (["no end"], "does not say where it ends", 1),
    ],
)
def test_half_a_file_is_no_file(
    tmp_path: Path, server: FileServer, faults: list[str], words: str, requests: int
) -> None:
    server.files["rows.jsonl"] = FILE * 1000
    server.faults = faults
    place = input_place(f"{server.root}/rows.jsonl", 0, str(tmp_path / "out.jsonl"))

    with pytest.raises(BadSource, match=words):
        download(place, lambda _: None, AT_ONCE)

    assert requests == len(server.asked)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_upload_that_fails_is_made_again_or_the_file_is_named(
    tmp_path: Path, server: FileServer
) -> None:
    place = output_place(f"{server.root}/out.jsonl?sig=secret", str(tmp_path))
    Path(place.file).write_bytes(FILE * 50_000)
    server.faults = ["503", "cut"]

    upload(place, lambda _: None, AT_ONCE)

    assert FILE * 50_000 == server.files["out.jsonl"]
    assert {"application/octet-stream"} == {one["Content-Type"] for one in server.headers}
    server.faults = ["403"]
    Path(place.file).write_bytes(FILE)
    with pytest.raises(StorageError, match="answers 403; the file lies whole in") as failed:
        upload(place, lambda _: None, AT_ONCE)
    assert "secret" not in str(failed.value)


@pytest.mark.slow
def test_a_batch_whose_upload_is_refused_is_not_asked_again(
    tmp_path: Path, server: FileServer
) -> None:
    (tmp_path / "in.jsonl").write_bytes(FILE)
    server.faults = ["403"]
    out = f"{server.root}/out.jsonl"

    refused, later = (batch("in.jsonl", out, tmp_path) for _ in range(2))

    assert (DIED, OK) == (refused.code, later.code), refused.stderr
    assert 0 == later.told["asked"]
    assert 3 == len(server.files["out.jsonl"].splitlines())


def test_urls_that_differ_by_more_than_a_signature_are_not_the_same_input() -> None:
    def name(query: str) -> str:
        return input_place(f"https://h/rows?{query}", 0, "out.jsonl").file

    assert name("id=1&sig=a&Expires=2") == name("id=1&sig=b&Expires=3")
    assert name("id=1") != name("id=2")
    assert name("id=1").endswith("-rows.jsonl")


@pytest.mark.parametrize("url", ["http://", "https://host", "http:///rows.jsonl"])
def test_urls_of_no_file_are_refused(url: str) -> None:
    with pytest.raises(BadSource, match="names no file"):
        check_urls([Place(url, "x")], [])
    with pytest.raises(BadOutput, match="names no file"):
        check_urls([], [Place(url, "x")])
