from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadMedia
from rowmill.media import sounds
from rowmill.media.resample import resampled
from tests.media.pictures_of import png, wav
from tests.media.sounds_of import encoded, tone, wave

RATE = 16_000


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_is_one_channel_of_samples_and_its_rate(kind: str, channels: int) -> None:
    content = tone(channels=channels, kind=kind)

    facts = sounds.look(content, "f", max_audio_s=60)
    samples, rate = sounds.decode(content, "f", max_audio_s=60)

    assert (RATE, RATE, 1.0) == (facts.samples, facts.rate, facts.seconds)
    assert ((RATE,), RATE, "float32") == (samples.shape, rate, samples.dtype.name)
    mixed = wave(440, RATE, RATE) * (1.0 if channels == 1 else 0.25)
    # The two that lose something are near to it, away from the ends.
    assert np.abs(samples - mixed)[2000:-2000].max() < (
        0.02 if kind in ("OGG", "MP3") else 1e-4
    )


@pytest.mark.parametrize("old", [8_000, 11_025, 22_050, 44_100, 44_101, 48_000, 192_000])
def test_resampled_tone_is_the_tone_at_the_new_rate(old: int) -> None:
    found = resampled(wave(440, old // 2, old), old, RATE)

    assert (-(-(old // 2) * RATE // old), "float32") == (len(found), found.dtype.name)
    assert np.abs(found - wave(440, len(found), RATE))[200:-200].max() < 1e-3


def test_resampling_leaves_out_what_the_new_rate_cannot_hold_and_takes_any_length() -> None:
    high = resampled(wave(12_000, 44_100, 44_100), 44_100, RATE)

    assert np.abs(high)[200:-200].max() < 1e-2
    for num in (1, 2, 3, 441, 70_000):
        assert -(-num * 160 // 441) == len(resampled(wave(9, num, 44_100), 44_100, RATE))


def test_audio_is_decoded_at_the_rate_that_is_asked_for() -> None:
    content = tone(num=44_100, rate=44_100, channels=2)

    samples, rate = sounds.decode(content, "f", max_audio_s=60, rate=RATE)

    assert ((RATE,), RATE) == (samples.shape, rate)
    assert np.abs(samples - wave(440, RATE, RATE) / 4)[200:-200].max() < 1e-3


def test_many_channels_are_mixed_before_they_take_room() -> None:
    content = encoded(np.zeros((48_000 * 20, 8), np.float32), 48_000, "FLAC")
    tracemalloc.start()
    try:
        samples, _ = sounds.decode(content, "f", max_audio_s=60)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(content) < 1 << 20
    assert peak < 3 * samples.nbytes


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "is empty"),
        (png(), "no audio"),
        (wav(3.0), "audio of 3 s, allowed are 2"),
        (wav(0.0), "without a single sample"),
        (tone(kind="AIFF"), "AIFF audio, expected"),
        (tone()[:20_000], "WAV audio that breaks off"),
        (tone(rate=400_000), "400,000 samples a second"),
    ],
)
def test_audio_that_is_none_or_not_taken_is_refused_by_its_head(
    content: bytes, word: str
) -> None:
    with pytest.raises(BadMedia, match=word):
        sounds.look(content, "f", max_audio_s=2)


@pytest.mark.parametrize("size", [0xFFFF_FFFF, 0x7FFF_FFFF, 32_044])
def test_wav_of_a_pipe_or_with_a_miscounted_head_is_taken(size: int) -> None:
    content = bytearray(tone())
    at = content.index(b"data") + 4
    content[at : at + 4] = size.to_bytes(4, "little")

    assert RATE == sounds.look(bytes(content), "f", max_audio_s=2).samples


@pytest.mark.parametrize(
    "content",
    [
        tone(kind="FLAC")[:6_000],
        encoded(np.array([0.5, np.nan], np.float32), RATE, subtype="FLOAT"),
        encoded(np.array([0.5, np.inf], np.float32), RATE, subtype="FLOAT"),
    ],
    ids=["cut", "no number", "infinite"],
)
def test_audio_that_is_damaged_behind_its_head_is_refused(content: bytes) -> None:
    assert sounds.look(content, "f", max_audio_s=60).samples > 0
    with pytest.raises(BadMedia, match="breaks off or is damaged"):
        sounds.decode(content, "f", max_audio_s=60)


@given(data=st.data())
def test_damaged_audio_is_read_or_is_bad_media(data: st.DataObject) -> None:
    """Whatever a decoder meets, it is the row's failure, never the run's."""
    kind = data.draw(st.sampled_from(["WAV", "FLAC", "OGG", "MP3"]))
    content = bytearray(tone(num=2_000, channels=2, kind=kind))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])

    try:
        rate = sounds.decode(cut, "f", max_audio_s=60, rate=RATE)[1]
    except BadMedia as error:
        rate = RATE if str(error).startswith("`f` is ") else 0

    assert rate == RATE
