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

from rowmill.errors import BadMedia, RowError
from rowmill.media import pictures, sounds
from rowmill.media.pictures import Facts
from rowmill.media.reading import digest_of, read
from rowmill.media.tokens import UNKNOWN, AudioTokens, ImageTokens
from rowmill.media_config import MediaConfig
from rowmill.media_item import Media
from rowmill.rows import Request

MOST_THREADS = 16
Reject = Callable[[int, RowError], None]


class Sight:
    """Looks at the media of rows before they are measured."""

    def __init__(self, config: MediaConfig, images: ImageTokens, audio: AudioTokens) -> None:
        self._config, self._images, self._audio = config, images, audio
        self.num_images = self.num_audio = self.num_unseen = self.num_half_heard = 0
        """Seen so far."""

    def notes(self) -> list[str]:
        """How images and audio were counted so far, in words."""
        notes = []
        if self.num_images:
            counted = f"{self.num_images:,} images so far"
            notes.append(f"{counted} are counted as tokens: {self._images.about}")
        if self.num_audio:
            counted = f"{self.num_audio:,} pieces of audio so far"
            notes.append(f"{counted} are counted as tokens: {self._audio.about}")
        if self.num_half_heard:
            longer = f"{self.num_half_heard:,} pieces of audio so far are longer than {self._audio.most_s:g} s"
            notes.append(f"{longer}: this model hears no more of them; cut them into pieces")
        if self.num_unseen:
            notes.append(
                f"{self.num_unseen:,} images or pieces of audio have URLs and are not looked at yet:"
                f" {UNKNOWN['image']:,} or {UNKNOWN['audio']:,} tokens each, a guess"
            )
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
            kinds = [one.kind for one, _ in looked if one.digest]
            self.num_unseen += len(looked) - len(kinds)
            self.num_images += kinds.count("image")
            self.num_audio += kinds.count("audio")
            self.num_half_heard += sum(self._is_half_heard(facts) for _, facts in looked)
            found[i] = msgspec.structs.replace(requests[i], media=[one for one, _ in looked])
        return found, bad

    def _look_at_all(self, media: Sequence[Media]) -> list[tuple[Media, Facts]] | RowError:
        try:
            return [self._look(one) for one in media]
        except RowError as error:
            return error

    def _look(self, media: Media) -> tuple[Media, Facts]:
        if media.origin == "url":
            unseen = msgspec.structs.replace(media, tokens=UNKNOWN[media.kind], is_exact=False)
            return unseen, Facts("")
        content = read(media, self._config)
        if media.kind == "audio":
            facts = sounds.look(content, media.field, max_audio_s=self._config.max_audio_s)
            is_exact = self._audio.is_exact
            tokens = self._audio.count(facts.samples, facts.rate)
            if is_exact and not tokens:
                reason = f"`{media.field}` is audio of {facts.seconds:.3g} s, too short for this model to hear"
                raise BadMedia(reason=reason)
        else:
            facts = pictures.look(content, media.field, max_pixels=self._config.max_pixels)
            is_exact = self._images.is_exact
            tokens = self._images.count(facts.width, facts.height)
        # The prompt holds one token in its place already, of a model whose rule is known.
        tokens -= is_exact
        seen = msgspec.structs.replace(
            media, digest=digest_of(content), tokens=tokens, is_exact=is_exact
        )
        return seen, facts

    def _is_half_heard(self, facts: Facts) -> bool:
        return bool(self._audio.most_s) and facts.seconds > self._audio.most_s


def num_threads(config: MediaConfig) -> int:
    """Threads that read and decode: two at least, so that a slow disk or host does not hold all others up."""
    return config.threads or max(2, min(MOST_THREADS, os.cpu_count() or 1))


def tokens_of(request: Request) -> tuple[int, int]:
    """What the media of a row takes of its prompt, about; and the part of it that is exact."""
    if not request.media:
        return 0, 0
    every = sum(one.tokens for one in request.media)
    return every, sum(one.tokens for one in request.media if one.is_exact)
