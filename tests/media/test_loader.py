from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from rowmill.media.loaded import Loaded
from rowmill.media.loader import Kept, Loader, Room
from rowmill.media_config import MediaConfig
from rowmill.media_item import MARK, Media
from rowmill.rows import Outcome, Prompts
from tests.engines.rows_of import byte_prompts
from tests.media.pictures_of import png, wav

PATIENCE_S = 30.0


class Taker:
    """A feed that keeps what it is given, in order."""

    def __init__(self) -> None:
        self.taken: list[Prompts] = []
        self.failed: list[Outcome] = []
        self.died: list[BaseException] = []
        self.is_over = threading.Event()

    def put(self, prompts: Prompts | None) -> None:
        if prompts is None:
            self.is_over.set()
        else:
            self.taken.append(prompts)

    def drop(self) -> None:
        self.is_over.set()

    def has(self, number: int) -> bool:
        """Whether so many were given."""
        return len(self.taken) >= number

    @property
    def keys(self) -> list[int]:
        return sorted(key for prompts in self.taken for key in prompts.keys)


def loader(
    taker: Taker, *, takes_wire: bool = False, audio_rate: int = 0, **settings: object
) -> Loader:
    config = MediaConfig.model_validate({"threads": 4, **settings})
    return Loader(
        taker,
        taker.failed.append,
        config,
        takes_wire=takes_wire,
        audio_rate=audio_rate,
        die=taker.died.append,
    )


def rows(media: Sequence[Sequence[Media]], wires: Sequence[bytes] = ()) -> Prompts:
    prompts = byte_prompts(["text"] * len(media))
    prompts.media = {i: list(some) for i, some in enumerate(media) if some}
    prompts.wires, prompts.wire_fields = list(wires), ["messages"] * len(wires)
    return prompts


def inline(content: bytes, **fields: object) -> Media:
    return msgspec.structs.replace(Media("image", "inline", "photo", content=content), **fields)


def at(folder: Path, name: str) -> Media:
    return Media("image", "path", "photo", where=name)


def done(taker: Taker, open_loader: Loader, *batches: Prompts) -> None:
    for batch in batches:
        open_loader.put(batch)
    open_loader.put(None)
    assert taker.is_over.wait(PATIENCE_S)
    assert not taker.died


def test_rows_without_media_pass_and_others_have_images() -> None:
    taker = Taker()

    done(taker, loader(taker), rows([[], [inline(png(8, 6))], []]))

    assert [0, 1, 2] == taker.keys
    (seen,) = [p.media[1] for p in taker.taken if p.media]
    assert ("RGB", (8, 6)) == (seen[0].value.mode, seen[0].value.size)


def test_bad_file_is_its_rows_outcome_and_others_go_on() -> None:
    taker = Taker()

    done(
        taker, loader(taker), rows([[inline(png())], [inline(png(), field="f"), inline(b"x")]])
    )

    assert [0] == taker.keys
    (failed,) = taker.failed
    assert (1, "bad_media", "error") == (failed.key, failed.error_kind, failed.status)
    assert "`photo` is no image" in (failed.error or "")


def test_file_of_many_rows_is_decoded_once(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(64, 64))
    (tmp_path / "b.png").write_bytes(png(32, 32))
    taker = Taker()
    open_loader = loader(taker, folder=str(tmp_path))
    each = [[at(tmp_path, "a.png"), at(tmp_path, "b.png"), at(tmp_path, "a.png")]] * 100

    done(taker, open_loader, rows(each))

    assert 100 == len(taker.keys)
    assert 2 == open_loader.num_decoded
    (first, second, third) = taker.taken[0].media[taker.taken[0].keys[0]]
    assert first.value is third.value
    assert first.digest != second.digest


def test_bad_file_of_many_rows_is_each_rows_failure(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(png()[:50])
    (tmp_path / "a.png").write_bytes(png(64, 64))
    taker = Taker()
    each = [[at(tmp_path, "a.png"), at(tmp_path, "bad.png")]] * 50 + [
        [at(tmp_path, "a.png")]
    ] * 50

    done(taker, loader(taker, folder=str(tmp_path)), rows(each))

    assert 50 == len(taker.failed)
    assert list(range(50, 100)) == taker.keys


def test_what_waits_for_the_engine_is_bounded() -> None:
    """One decoded image is 750 kB here; of a megabyte, three quarters are for what waits: one row at a time."""
    taker = Taker()
    open_loader = loader(taker, memory_mib=1)
    images = [[inline(png(500, 500, (i, 0, 0)), digest=str(i))] for i in range(6)]
    open_loader.put(rows(images))
    open_loader.put(None)

    for number in range(1, 7):
        wait_for(partial(taker.has, number))
        assert number == len(taker.taken)
        open_loader.room.free(500 * 500 * 3)

    assert taker.is_over.wait(PATIENCE_S)


def wait_for(is_so: Callable[[], bool]) -> None:
    """Look again until something is so."""
    beat = threading.Event()
    for _ in range(3000):
        if is_so():
            return
        beat.wait(0.01)
    pytest.fail("in vain")


def test_dropped_rows_are_forgotten() -> None:
    taker = Taker()
    open_loader = loader(taker, memory_mib=1, threads=1)
    images = [[inline(png(500, 500, (i, 0, 0)), digest=str(i))] for i in range(6)]
    open_loader.put(rows(images))
    wait_for(lambda: len(taker.taken) == 1)

    open_loader.drop()

    assert taker.is_over.is_set()
    open_loader.put(None)
    wait_for(lambda: not open_loader.num_loading)
    assert len(taker.taken) <= 2


def test_bodies_of_endpoints_are_filled_with_files_as_they_were() -> None:
    taker, content, sound = Taker(), png(), wav()
    heard = Media("audio", "inline", "said", content=sound, form="audio")
    wire = b'[{"content":[{"url":' + MARK + b'},{"input_audio":' + MARK + b"}]}]"

    done(taker, loader(taker, takes_wire=True), rows([[inline(content), heard]], [wire]))

    (message,) = json.loads(taker.taken[0].wires[0])
    image, audio = message["content"]
    assert image["url"].startswith("data:image/png;base64,")
    assert content == b64decode(image["url"].partition(",")[2])
    assert ("wav", sound) == (
        audio["input_audio"]["format"],
        b64decode(audio["input_audio"]["data"]),
    )


def test_clip_of_many_rows_is_decoded_once_at_the_rate_that_the_model_hears(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.wav").write_bytes(wav(1.0, rate=44_100, channels=2))
    clip = Media("audio", "path", "said", where="a.wav")
    taker = Taker()
    hears = loader(taker, audio_rate=16_000, folder=str(tmp_path))

    done(taker, hears, rows([[clip]] * 30))

    found = [one for taken in taker.taken for media in taken.media.values() for one in media]
    assert (30, 1, 1) == (len(found), len({id(one.value) for one in found}), hears.num_decoded)
    samples, rate = found[0].value
    assert ((16_000,), 16_000, 64_000) == (samples.shape, rate, found[0].num_bytes)


def test_file_that_somebody_decodes_is_waited_for() -> None:
    kept = Kept(0)
    first, is_mine = kept.claim(("url", "a"))
    again, is_mine_too = kept.claim(("url", "a"))

    assert (True, False) == (is_mine, is_mine_too)
    assert first is again


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept = Kept(25)
    for name in "ab":
        kept.claim(("url", name))[0].set_result(Loaded("image", name, None, 10))
        kept.keep(("url", name))

    kept.claim(("url", "a"))
    kept.claim(("url", "c"))[0].set_result(Loaded("image", "c", None, 10))
    kept.keep(("url", "c"))

    assert [False, True, False] == [kept.claim(("url", name))[1] for name in "abc"]


def test_more_than_all_room_is_let_in_alone() -> None:
    room = Room(10)

    room.take(100)
    waits = threading.Thread(target=room.take, args=(1,))
    waits.start()
    room.free(100)
    waits.join(PATIENCE_S)

    assert not waits.is_alive()
