"""Case 37: images that are broken, missing or not allowed are their own rows' errors, and nothing else's."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from tests.cases.command import (
    INPUTS,
    SOME_FAILED,
    check_carried,
    check_whole,
    job,
    rowmill,
    run,
)
from tests.cases.compare import Record, by_id, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "37"
SOURCE = CASE / "input.jsonl"
EXPECTED = by_id(read_records(CASE / "expected.jsonl"))
# Rows of which the case leaves open what becomes of them: base64 may hold white space, what an image is its bytes say;
# a text without a scheme is a path, and by default none is read.
ANSWERED = {"wrong-mime", "spaces"}
REFUSED = {"no-prefix", "local-path"}
SENTENCES = {
    "no-padding": "base64",
    "no-prefix": "media.folder",
    "not-image": "no image that can be read",
    "cut-png": "breaks off",
    "http-404": "media.hosts",
    "file-url": "scheme `file`",
    "local-path": "media.folder",
    "url-null": "null",
}


@pytest.fixture(scope="module")
def seen(
    tmp_path_factory: pytest.TempPathFactory, serve: Serve
) -> tuple[dict[str, Record], list[str], str]:
    out, endpoint = tmp_path_factory.mktemp("run") / "out", serve()
    finished = run(SOURCE, out, endpoint=endpoint, sets={"kind": "chat"})
    records = check_whole(finished, out, 14)
    check_carried(SOURCE, out)
    assert SOME_FAILED == finished.code
    bodies = [request["body"] for request in endpoint.requests()]
    return by_id(records), bodies, finished.stderr


def test_good_rows_are_answered_and_bad_ones_say_where_and_why(
    seen: tuple[dict[str, Record], list[str], str],
) -> None:
    records, _, _ = seen
    for id_, expected in EXPECTED.items():
        ok = expected["outcome"] == "ok" or id_ in ANSWERED
        assert ok == (records[id_]["rowmill_status"] == "ok"), records[id_]
        if expected["outcome"] == "ok":
            assert expected["text"] == records[id_]["rowmill_text"]
    for id_, word in SENTENCES.items():
        assert "messages[0].content[1]" in records[id_]["rowmill_error"]
        assert word in records[id_]["rowmill_error"]


def test_nothing_of_an_image_or_of_this_machine_is_told(
    seen: tuple[dict[str, Record], list[str], str],
) -> None:
    records, bodies, words = seen
    hostname = Path("/etc/hostname").read_text("utf-8").strip()
    told = [records[id_]["rowmill_error"] for id_ in SENTENCES]
    assert all(len(sentence) < 250 and "iVBOR" not in sentence for sentence in told)
    assert "iVBOR" not in words
    coded = b64encode(hostname.encode()).decode().rstrip("=")
    assert not any(coded in body or f'"{hostname}"' in body for body in bodies)


def test_what_was_asked_with_is_told_and_sent_as_what_it_is(
    seen: tuple[dict[str, Record], list[str], str],
) -> None:
    records, bodies, _ = seen

    one, two = records["good"]["rowmill_media"], records["two-images"]["rowmill_media"]
    assert [*one, *one] == two
    assert one == records["wrong-mime"]["rowmill_media"] == records["spaces"]["rowmill_media"]
    assert one != records["good-1x1"]["rowmill_media"]
    assert one[0].startswith("sha256:")
    assert [] == records["text-only"]["rowmill_media"]
    sent = next(body for body in bodies if "mime?" in body)
    assert "data:image/png;base64,iVBOR" in sent


def test_paths_are_read_below_a_named_folder(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(), tmp_path / "out"

    sets = {"kind": "chat", "media.folder": str(CASE)}
    found = by_id(check_whole(run(SOURCE, out, endpoint=endpoint, sets=sets), out, 14))

    assert "ok" == found["local-path"]["rowmill_status"]
    assert found["good"]["rowmill_media"] == found["local-path"]["rowmill_media"]
    assert "no such file" in found["no-prefix"]["rowmill_error"]


def test_engine_without_images_refuses_the_part_and_the_columns(tmp_path: Path) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text(json.dumps({"photo": "x.png"}) + "\n")

    parts = rowmill("check", job(SOURCE, None, sets={"kind": "chat"}))
    columns = rowmill(
        "check", job(rows, None, "--prompt", "q", sets={"media.images": '["photo"]'})
    )

    assert "this engine takes no images" in parts.stdout
    assert 2 == columns.code
    assert "takes no images" in columns.stderr
