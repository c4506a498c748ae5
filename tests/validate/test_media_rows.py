from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest

from rowmill.errors import ConfigError
from rowmill.media_item import MARK, Media
from rowmill.read.view import ColumnsView
from rowmill.rows import Limits, Request, Sampling, TableRow
from rowmill.validate import validate
from tests.validate.rows_of import ask, line, recipe, refusal

ALL = Sampling.__struct_fields__
SEES = Limits(sampling=ALL[:-1], media=("image", "audio"))
WIRE = Limits(takes="wire", sampling=ALL, media=("image", "audio"))
CONTENT = b"bytes of an image"
CODED = b64encode(CONTENT).decode()
DATA = f"data:image/png;base64,{CODED}"


def asked(raw: bytes, limits: Limits = SEES, **job: Any) -> Request:
    return ask(raw, recipe(limits, **job))


def refused(raw: bytes, limits: Limits = SEES, **job: Any) -> str:
    return refusal(raw, recipe(limits, **job))


def chat(*parts: Any) -> bytes:
    return line(
        messages=[{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
    )


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def test_parts_become_places_for_templates_and_media_in_order() -> None:
    text = {"type": "text", "text": "t"}
    path = {"type": "image", "image": "a/b.png"}
    heard = {"type": "input_audio", "input_audio": {"data": CODED, "format": "wav"}}

    request = asked(chat(image(DATA), text, path, heard), media={"folder": "/d"})

    assert request.messages == [
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        {
            "role": "user",
            "content": [{"type": "image"}, text, {"type": "image"}, {"type": "audio"}],
        },
    ]
    field = "messages[1].content"
    assert list(request.media) == [
        Media("image", "inline", f"{field}[0]", content=CONTENT),
        Media("image", "path", f"{field}[2]", where="a/b.png"),
        Media("audio", "inline", f"{field}[3]", content=CONTENT, form="audio"),
    ]


def test_endpoint_is_sent_what_stood_there_but_for_the_files() -> None:
    text = {"type": "text", "text": "t", "own": 1}
    raw = chat(image(DATA, detail="low"), text, image("https://h.org/a.png"))

    read = asked(raw, WIRE, media={"hosts": ["h.org"]})
    passed = asked(raw, WIRE, media={"hosts": ["h.org"], "send": "url"})

    (_, user) = json.loads(read.wire.replace(MARK, b'"HERE"'))
    assert [image("HERE", detail="low"), text, image("HERE")] == user["content"]
    assert 2 == len(read.media) == read.wire.count(MARK)
    (_, user) = json.loads(passed.wire.replace(MARK, b'"HERE"'))
    assert [image("HERE", detail="low"), text, image("https://h.org/a.png")] == user["content"]
    assert ["inline"] == [media.origin for media in passed.media]


@pytest.mark.parametrize(
    ("part", "word"),
    [
        (image("data:image/png,abc"), "without `;base64,`"),
        (image("data:image/png;base64,YQ"), "no base64"),
        (image("data:image/png;base64,Y%3D="), "no base64"),
        (image(None), "null, expected a URL"),
        (image(["x"]), "a list, expected a URL"),
        (image("file:///etc/passwd"), "scheme `file`"),
        (image("a.png"), "media.folder"),
        (image("https://h.org/a.png"), "media.hosts"),
        ({"type": "image_url"}, "null, expected"),
        ({"type": "image_url", "image_url": {}}, "an object without `url`"),
        ({"type": "input_audio", "input_audio": "x"}, "an object with `data`"),
        ({"type": "video_url", "video_url": {"url": DATA}}, "`video_url`, expected one of"),
    ],
)
def test_wrong_part_names_its_place_and_what_is_wrong(part: Any, word: str) -> None:
    sentence = refused(chat({"type": "text", "text": "t"}, part))

    assert "`messages[1].content[1]" in sentence
    assert word in sentence
    assert len(sentence) < 300


def test_columns_stand_before_the_text_of_the_prompt() -> None:
    job: dict[str, Any] = {
        "prompt": "{q}",
        "system": "s",
        "kind": "chat",
        "media": {"images": ["photo"], "audio": "said", "folder": "/d"},
    }
    raw = line(
        q="what?", photo=["a.png", {"path": "b.png"}], said={"bytes": CODED, "path": "x"}
    )

    seen, sent = asked(raw, **job), asked(raw, WIRE, **job)

    parts = [{"type": "image"}, {"type": "image"}, {"type": "audio"}]
    assert seen.messages is not None
    assert [*parts, {"type": "text", "text": "what?"}] == seen.messages[-1]["content"]
    assert ["a.png", "b.png", ""] == [media.where for media in seen.media]
    assert ["photo[0]", "photo[1].path", "said"] == [media.field for media in seen.media]
    assert CONTENT == seen.media[2].content
    assert 3 == sent.wire.count(MARK)
    assert "is absent" in refused(line(q="what?", said="x"), **job)
    assert "null" in refused(line(q="what?", said="x.wav", photo=None), **job)
    assert not asked(line(q="what?", photo=[], said=[]), **job).media


def test_bytes_of_a_table_are_a_file_and_its_texts_are_paths() -> None:
    batch = pa.record_batch({"q": ["a"], "photo": pa.array([CONTENT], pa.binary())})
    paths = pa.record_batch({"q": ["a"], "photo": ["a.png"]})
    inner = pa.record_batch({"q": ["a"], "photo": [{"bytes": CONTENT, "path": None}]})
    by = recipe(SEES, prompt="{q}", media={"images": "photo", "folder": "/d"})

    found = [
        validate(TableRow(i, ColumnsView(table), 0), by).media[0]
        for i, table in enumerate((batch, paths, inner))
    ]

    assert ["inline", "path", "inline"] == [media.origin for media in found]
    assert CONTENT == found[0].content == found[2].content


def test_job_that_the_engine_cannot_do_is_refused_by_name() -> None:
    deaf = Limits(media=("image",), about="Some engine")
    with pytest.raises(ConfigError, match=r"`media\.audio` .* Some engine takes no audio"):
        recipe(deaf, prompt="{q}", media={"audio": "said"})
    with pytest.raises(ConfigError, match="completions of an endpoint take text alone"):
        recipe(WIRE, prompt="{q}", kind="generate", media={"images": "photo"})
    assert "this engine takes no audio" in refused(
        chat({"type": "audio_url", "audio_url": {"url": DATA}}), deaf
    )


def test_completion_brings_its_own_places() -> None:
    job: dict[str, Any] = {
        "kind": "generate",
        "prompt": "<image>{q}",
        "media": {"images": "p", "folder": "/d"},
    }

    request = asked(line(q="what?", p="a.png"), **job)

    assert "<image>what?" == request.text
    assert 1 == len(request.media)


def test_tools_are_kept_for_engines_that_read_calls_out_of_answers() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    messages = [{"role": "user", "content": "q"}]
    plain = Limits(sampling=())

    kept = asked(line(messages=messages, tools=tools))
    unread = asked(line(messages=messages, tools=tools), plain)
    none = asked(line(messages=messages, tools=tools, tool_choice="none"))
    wire = asked(line(messages=messages, tools=tools, tool_choice="required"), WIRE)

    assert tools == json.loads(kept.sampling.tools) == kept.tools == unread.tools
    assert ("", None) == (unread.sampling.tools, none.tools)
    assert {"tools": tools, "tool_choice": "required"} == json.loads(wire.sampling.extra)
    assert "`tool_choice` is `required`" in refused(
        line(messages=messages, tools=tools, tool_choice="required")
    )
