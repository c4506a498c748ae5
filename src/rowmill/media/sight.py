"""Requests -> the same, with what their images and audio are: digests and tokens; files of the rows are looked at, URLs are not.

Promises: a file is read once here and kept by its digest alone; its pixels are not unpacked; a bad one is its row's failure.
Knows nothing of: engines, plans.
Memory: a file a thread, beside what stands in the rows themselves. Threads: a pool, while rows are looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from rowmill.errors import RowError
from rowmill.media import pictures, sounds
from rowmill.media.reading import digest_of, read
from rowmill.media.tokens import AUDIO_TOKENS_S, UNKNOWN_IMAGE, ImageTokens
from rowmill.media_config import MediaConfig
from rowmill.media_item import Media
from rowmill.rows import Request

MOST_THREADS = 16
Reject = Callable[[int, RowError], None]


class Sight:
    """Looks at the media of rows before they are measured."""

    def __init__(self, config: MediaConfig, tokens: ImageTokens) -> None:
        self._config, self._tokens = config, tokens
        self.num_images = self.num_audio = self.num_unseen = 0
        """Seen so far."""

    def notes(self) -> list[str]:
        """How images and audio were counted so far, in words."""
        notes = []
        if self.num_images:
            counted = f"{self.num_images:,} images so far"
            notes.append(f"{counted} are counted as tokens: {self._tokens.about}")
        if self.num_unseen:
            notes.append(
                f"{self.num_unseen:,} images have URLs and are not looked at yet:"
                f" {UNKNOWN_IMAGE:,} tokens each, a guess"
            )
        if self.num_audio:
            counted = f"{self.num_audio:,} pieces of audio"
            notes.append(f"{counted}: {AUDIO_TOKENS_S} tokens a second, an estimate")
        return notes

    def seen(
        self, requests: Sequence[Request], reject: Reject
    ) -> tuple[Sequence[Request], set[int]]:
        """Requests of which all media is looked at, and the indices of those that fell out."""
        rows = [i for i, request in enumerate(requests) if request.media]
        if not rows:
            return requests, set()
        found = list(requests)
        bad: set[int] = set()
        with ThreadPoolExecutor(num_threads(self._config)) as pool:
            looks = list(pool.map(self._look_at_all, [requests[i].media for i in rows]))
        for i, looked in zip(rows, looks, strict=True):
            if isinstance(looked, RowError):
                reject(i, looked)
                bad.add(i)
                continue
            images = [one for one in looked if one.kind == "image"]
            self.num_unseen += sum(not one.digest for one in images)
            self.num_images += sum(bool(one.digest) for one in images)
            self.num_audio += sum(one.kind == "audio" for one in looked)
            found[i] = msgspec.structs.replace(requests[i], media=looked)
        return found, bad

    def _look_at_all(self, media: Sequence[Media]) -> list[Media] | RowError:
        try:
            return [self._look(one) for one in media]
        except RowError as error:
            return error

    def _look(self, media: Media) -> Media:
        if media.origin == "url":
            return msgspec.structs.replace(media, tokens=UNKNOWN_IMAGE, is_exact=False)
        content = read(media, self._config)
        if media.kind == "audio":
            sound = sounds.look(content, media.field, max_audio_s=self._config.max_audio_s)
            tokens, is_exact = round(sound.seconds * AUDIO_TOKENS_S), False
        else:
            image = pictures.look(content, media.field, max_pixels=self._config.max_pixels)
            is_exact = self._tokens.is_exact
            # The prompt holds one token in its place already, of a model whose rule is known.
            tokens = self._tokens.count(image.width, image.height) - is_exact
        return msgspec.structs.replace(
            media, digest=digest_of(content), tokens=tokens, is_exact=is_exact
        )


def num_threads(config: MediaConfig) -> int:
    """Threads that read and decode: two at least, so that a slow disk or host does not hold all others up."""
    return config.threads or max(2, min(MOST_THREADS, os.cpu_count() or 1))


def tokens_of(request: Request) -> tuple[int, int]:
    """What the media of a row takes of its prompt, about; and the part of it that is exact."""
    if not request.media:
        return 0, 0
    every = sum(one.tokens for one in request.media)
    return every, sum(one.tokens for one in request.media if one.is_exact)
