"""Input and servers that mean harm: each refused or contained, in words, with nothing written where it should not be."""

from __future__ import annotations

import gzip
import json
import lzma
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cases.command import (
    OK,
    REFUSED,
    SOME_FAILED,
    check_refused,
    check_whole,
    job,
    results,
    rowmill,
    run,
)

SECRET = "sk-planted-0123456789abcdef"


class _Gossip(BaseHTTPRequestHandler):
    """Repeats the key that it was sent, in each of its errors."""

    def do_GET(self) -> None:
        self._say(200, {"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Authorization", "")
        assert SECRET in key
        if "bad" in json.dumps(body):
            self._say(400, {"error": {"message": f"wrong key {key} ({SECRET})"}})
            return
        message = {"role": "assistant", "content": "well"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._say(200, {"choices": [choice], "usage": {}})

    def _say(self, status: int, told: object) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """In no file either."""


@contextmanager
def gossip() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Gossip)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_a_planted_secret_is_in_nothing_that_is_written(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    texts = ("good", "bad", "fine")
    source.write_text("".join(json.dumps({"id": t, "prompt": t}) + "\n" for t in texts))
    changes = {"MY_KEY": SECRET, "TMPDIR": str(tmp_path)}
    with gossip() as url:
        options = ["--url", url, "--set", 'engine.api_key="env:MY_KEY"']
        arguments = [str(source), "-o", str(out), *options]
        done = rowmill("run", arguments, changes=changes)
        again = rowmill("retry", [str(out)], changes=changes)
    looked = [rowmill("status", [str(out)])]
    looked.append(rowmill("trace", [str(out), "bad"]))
    looked.append(rowmill("run", [*arguments, "--set", f"engine.api_key={SECRET}"]))

    assert (SOME_FAILED, SOME_FAILED) == (done.code, again.code), done.stderr
    (failed,) = [r for r in results(out) if r["rowmill_error"] is not None]
    assert "(hidden)" in failed["rowmill_error"]
    assert REFUSED == looked[-1].code
    for finished in (done, again, *looked):
        assert SECRET not in finished.stdout + finished.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [] == [str(path) for path in written if SECRET.encode() in path.read_bytes()]


PATHS = [
    "../../escaped",
    "/etc/rowmill-escaped",
    "a/b/../../../c",
    "nul\x00in",
    "..",
    "C:\\x",
    "~",
]


@pytest.mark.slow
def test_ids_with_path_parts_are_text_and_name_no_file(tmp_path: Path) -> None:
    source, out = tmp_path / "in" / "in.jsonl", tmp_path / "deep" / "er" / "out"
    source.parent.mkdir()
    out.parent.mkdir(parents=True)
    source.write_text("".join(json.dumps({"id": i, "prompt": "x"}) + "\n" for i in PATHS))

    done = run(source, out)
    records = check_whole(done, out, len(PATHS))

    assert PATHS == [record["id"] for record in records]
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and out not in p.parents]
    assert [source] == outside
    assert not Path("/etc/rowmill-escaped").exists()
    assert OK == rowmill("trace", [str(out), "../../escaped"]).code


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_text_that_unpacks_out_of_all_proportion_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    """2 GiB of blanks, and a good row in front: 2 MB of gzip, 300 KB of xz."""
    source, out = tmp_path / f"in.jsonl.{suffix}", tmp_path / "out"
    with gzip.open(source, "wb", 6) if suffix == "gz" else lzma.open(source, "wb") as file:
        file.write(b'{"prompt": "x"}\n')
        for _ in range(2**31 // 2**22):
            file.write(b" " * (2**22 - 1) + b"\n")

    words = check_refused(run(source, out))

    assert "over 250 times as much" in words
    assert not out.exists()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "pattern",
    ["", pytest.param("/*.jsonl", marks=SLOW), pytest.param("/**/*.jsonl", marks=SLOW)],
)
def test_links_that_lead_out_of_the_folder_are_refused_or_passed_over(
    tmp_path: Path, pattern: str
) -> None:
    folder, private = tmp_path / "given", tmp_path / "private.jsonl"
    (folder / "deep").mkdir(parents=True)
    private.write_text('{"prompt": "private"}\n')
    (folder / "own.jsonl").write_text('{"prompt": "own"}\n')
    (folder / "link.jsonl").symlink_to(private)
    (folder / "same.jsonl").symlink_to("own.jsonl")

    given = [Path(f"{folder}{pattern}")]

    refused = run(given, tmp_path / "out")

    assert "leads out of the folder" in check_refused(refused)
    assert f"`{folder / 'link.jsonl'}`" in refused.stderr
    assert not (tmp_path / "out").exists()

    done = run(given, tmp_path / "out", sets={"read.links": "skip"})

    assert OK == done.code, done.stderr
    assert ["own"] == [record["prompt"] for record in results(tmp_path / "out")]
    assert "links that lead out of the folder (1)" in done.stderr
    assert b"private" not in b"".join(
        path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()
    )


TEMPLATES = {
    "reaching": "{{ prompt.__class__.__mro__[1].__subclasses__() }}",
    "endless": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "growing": "{{ prompt * 10**10 }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_that_mean_harm_are_refused_in_words(tmp_path: Path, name: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text('{"prompt": "a"}\n' * 3)

    done = run(source, out, sets={"prompt_jinja": TEMPLATES[name]})

    if name == "reaching":
        assert "no template may reach" in check_refused(done)
    else:
        assert "does more than it may for one row" in done.stderr
        assert done.code in (REFUSED, SOME_FAILED)


def test_a_model_s_own_template_is_held_to_the_same(tmp_path: Path) -> None:
    source, template = tmp_path / "in.jsonl", tmp_path / "chat.jinja"
    source.write_text('{"prompt": "a"}\n')
    template.write_text("{{ messages.__class__ }}")
    arguments = job(source, tmp_path / "out", sets={"engine.chat_template": str(template)})

    assert "no template may reach" in check_refused(rowmill("run", arguments))
    assert not (tmp_path / "out").exists()
