"""Prompts -> the same, their images and audio decoded, ahead of the engine: what stands between the channel and the feed.

Promises: rows without media pass at once; what waits for the engine is bounded, however many rows wait; a file that many
rows show is decoded once while there is room to keep it; a bad one is its row's outcome, and holds nobody up.
Knows nothing of: channels, engines beyond whether they take bodies.
Memory: `media.memory_mib`, and a file beside it for each thread. Threads: a pool.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from rowmill.errors import RowError
from rowmill.media import pictures, sounds
from rowmill.media.loaded import Loaded
from rowmill.media.reading import digest_of, read
from rowmill.media.sight import num_threads
from rowmill.media_config import MediaConfig
from rowmill.media_item import MARK, Media
from rowmill.rows import Outcome, Prompts

_KEPT_SHARE = 4
_RGB, _SAMPLE_BYTES = 3, 4
Key = tuple[str, str]


class Target(Protocol):
    """Where rows go on to: an engine's feed."""

    def put(self, prompts: Prompts | None) -> None:
        """Add rows; None: no more will come."""
        ...

    def drop(self) -> None:
        """Forget rows that are not taken yet; no more will come."""
        ...


class Room:
    """Bytes that may wait; one that is larger than all of it is let in alone."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._is_open = True
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """Wait for so much room."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._is_open or not self._held or self._held + size <= self._most
            )
            self._held += size

    def free(self, size: int) -> None:
        """Give it back."""
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def open_all(self) -> None:
        """Let everybody in from now on: nothing is waited for any more."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()


class Loader:
    """One engine's."""

    def __init__(
        self,
        target: Target,
        fail: Callable[[Outcome], None],
        config: MediaConfig,
        *,
        takes_wire: bool,
        die: Callable[[BaseException], None],
        audio_rate: int = 0,
    ) -> None:
        """A loader that gives rows on.

        Args:
            fail: given the outcome of a row that cannot be asked.
            die: called where a row makes this fail in a way that nobody foresaw.
            audio_rate: samples a second that audio is brought to; 0: it stays as it is.
        """
        self._target, self._fail, self._config, self._die = target, fail, config, die
        self._takes_wire, self._audio_rate = takes_wire, audio_rate
        most = config.memory_mib << 20
        self.room = Room(most - most // _KEPT_SHARE)
        self._kept = Kept(most // _KEPT_SHARE)
        self._pool = ThreadPoolExecutor(num_threads(config), thread_name_prefix="media")
        self._lock = threading.Lock()
        self._loading = 0
        self._has_ended = self._is_dropped = False
        self.num_decoded = 0

    @property
    def num_loading(self) -> int:
        """Rows that are neither given on nor failed."""
        with self._lock:
            return self._loading

    def put(self, prompts: Prompts | None) -> None:
        """Rows as they come; None: no more will."""
        if prompts is None:
            with self._lock:
                self._has_ended = True
                is_over = not self._loading
            if is_over:
                self._target.put(None)
            return
        seen = [i for i, key in enumerate(prompts.keys) if key in prompts.media]
        if not seen:
            self._target.put(prompts)
            return
        plain = [i for i, key in enumerate(prompts.keys) if key not in prompts.media]
        if plain:
            self._target.put(msgspec.structs.replace(prompts.take(plain), media={}))
        with self._lock:
            self._loading += len(seen)
        for i in seen:
            one = prompts.slice(i, i + 1)
            self._pool.submit(
                self._load, msgspec.structs.replace(one, media={}), prompts.media[one.keys[0]]
            )

    def drop(self) -> None:
        """Forget rows that are not loaded or not taken yet; no more will come."""
        with self._lock:
            self._is_dropped = True
        self.room.open_all()
        self._target.drop()

    def _load(self, one: Prompts, media: Sequence[Media]) -> None:
        """A row, in a thread of the pool: it goes on, fails, or is forgotten; then it is no longer being loaded."""
        try:
            if not self._is_dropped:
                self._target.put(self._with_media(one, media))
        except RowError as error:
            self._fail(_failed(one, error))
        # Nobody looks at what a pool's threads raise, and the engine must not wait for the row for ever.
        except BaseException as error:
            self._die(error)
        with self._lock:
            self._loading -= 1
            is_over = self._has_ended and not self._loading
        if is_over:
            self._target.put(None)

    def _with_media(self, one: Prompts, media: Sequence[Media]) -> Prompts:
        loaded = self._all_loaded(media)
        size = sum(found.num_bytes for found in loaded)
        self.room.take(size)
        wires = one.wires
        if self._takes_wire:
            wires = [filled(one.wires[0], loaded)]
            loaded = [msgspec.structs.replace(found, url=b"") for found in loaded]
        return msgspec.structs.replace(one, wires=wires, media={one.keys[0]: loaded})

    def _all_loaded(self, media: Sequence[Media]) -> list[Loaded]:
        """Each of a row's, decoded here unless another row has it, or is at it."""
        different = {_key(one): one for one in media}
        claims = {key: self._kept.claim(key) for key in different}
        mine = {key: found for key, (found, is_mine) in claims.items() if is_mine}
        try:
            for key, found in mine.items():
                found.set_result(self._decoded(different[key]))
                self._kept.keep(key)
        except BaseException as error:
            for key, found in mine.items():
                if not found.done():
                    self._kept.forget(key)
                    found.set_exception(error)
            raise
        # Only now others are waited for: whoever is at one of theirs waits for nobody.
        return [self._taken(one, claims[_key(one)][0]) for one in media]

    def _taken(self, one: Media, found: Future[Loaded]) -> Loaded:
        try:
            return found.result()
        except RowError:
            # Said of another row's field: say it of this one's.
            return self._decoded(one)

    def _decoded(self, media: Media) -> Loaded:
        config, field = self._config, media.field
        content = read(media, config)
        digest = digest_of(content)
        with self._lock:
            self.num_decoded += 1
        if media.kind == "image":
            facts = pictures.look(content, field, max_pixels=config.max_pixels)
            size = facts.width * facts.height * _RGB
        else:
            facts = sounds.look(content, field, max_audio_s=config.max_audio_s)
            # The samples twice: they are copied to be brought to another rate.
            size = (2 * facts.samples + int(facts.seconds * self._audio_rate)) * _SAMPLE_BYTES
        # What is unpacked counts from before it is, so that threads together stay within the bound.
        taken = size
        self.room.take(taken)
        value: Any
        try:
            if media.kind == "image":
                value = pictures.decode(content, field, max_pixels=config.max_pixels)
            else:
                value = sounds.decode(
                    content, field, max_audio_s=config.max_audio_s, rate=self._audio_rate
                )
                size = value[0].nbytes
        finally:
            self.room.free(taken)
        if not self._takes_wire:
            return Loaded(media.kind, digest, value, size)
        url = _url(media, content, facts.mime)
        return Loaded(media.kind, digest, None, len(url), url)


class Kept:
    """Files that may come again, those used last; and those that somebody decodes just now."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._lock = threading.Lock()
        self._found: dict[Key, Future[Loaded]] = {}
        """What is decoded, or will be."""
        self._sizes: OrderedDict[Key, int] = OrderedDict()
        """Of what is kept, that used last behind."""

    def claim(self, key: Key) -> tuple[Future[Loaded], bool]:
        """What is known of a file, or will be; and whether it is the caller's to find out."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                if key in self._sizes:
                    self._sizes.move_to_end(key)
                return found, False
            self._found[key] = Future()
            return self._found[key], True

    def keep(self, key: Key) -> None:
        """It is known now: keep it while there is room."""
        with self._lock:
            self._sizes[key] = self._found[key].result().num_bytes
            self._held += self._sizes[key]
            while self._held > self._most:
                old, size = self._sizes.popitem(last=False)
                self._held -= size
                del self._found[old]

    def forget(self, key: Key) -> None:
        """It could not be had; who comes later tries again."""
        with self._lock:
            self._found.pop(key, None)


def filled(wire: bytes, loaded: Sequence[Loaded]) -> bytes:
    """A body's part with what was left open in it."""
    pieces = wire.split(MARK)
    parts = [pieces[0]]
    for found, piece in zip(loaded, pieces[1:], strict=True):
        parts += (found.url, piece)
    return b"".join(parts)


def _key(media: Media) -> Key:
    return media.form, media.identity or digest_of(media.content)


def _url(media: Media, content: bytes, mime: str) -> bytes:
    """JSON text of what an endpoint is sent: the file as it was, under the name of what it is."""
    text = b64encode(content)
    if media.form == "audio":
        name = mime.removeprefix("audio/").encode()
        return b'{"data":"%b","format":"%b"}' % (text, name)
    return b'"data:%b;base64,%b"' % (mime.encode(), text)


def _failed(one: Prompts, error: RowError) -> Outcome:
    return Outcome(
        key=one.keys[0],
        status="error",
        prompt_tokens=int(one.stops[0]),
        max_tokens=one.max_tokens[0],
        error_kind=error.kind,
        error=error.sentence(),
    )
