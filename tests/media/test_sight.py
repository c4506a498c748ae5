from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowmill.config import Job
from rowmill.errors import RowError, TooLong
from rowmill.media.sight import Sight
from rowmill.media.tokens import audio_tokens, image_tokens
from rowmill.media_config import MediaConfig
from rowmill.media_item import Media
from rowmill.plan.duplicates import find_copies
from rowmill.rows import Limits, Request, Sampling
from tests.measure.measured import opened
from tests.media.pictures_of import png, wav

GREEDY = Sampling(temperature=0)
QWEN = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1003520}


def folder_of(folder: Path, kind: str, **images: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return str(folder)


def row(key: int, *media: Media) -> Request:
    parts = [*({"type": one.kind} for one in media), {"type": "text", "text": "hi"}]
    messages = [{"role": "user", "content": parts}]
    return Request(key, GREEDY, messages=messages, media=media)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [((1000, 500), 36 * 18), ((28, 28), 4), ((4000, 4000), 35 * 35), ((10, 2000), 71 * 1)],
)
def test_qwen_counts_multiples_of_a_patch_within_its_pixels(
    tmp_path: Path, size: tuple[int, int], tokens: int
) -> None:
    found = image_tokens(folder_of(tmp_path, "qwen2_vl", **QWEN))

    assert found.is_exact
    assert tokens == found.count(*size)


def test_model_of_a_family_that_is_not_known_is_estimated_and_says_so(tmp_path: Path) -> None:
    found = image_tokens(folder_of(tmp_path, "novel_vl"))
    broken = image_tokens(folder_of(tmp_path, "idefics3", size=3))

    assert not found.is_exact
    assert not broken.is_exact
    assert "estimate" in found.about
    assert 1000 * 784 // 784 == found.count(28 * 10, 28 * 100)


def test_files_are_known_by_their_digests_and_urls_are_not_asked(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    sight = Sight(MediaConfig(folder=str(tmp_path)), image_tokens(""), audio_tokens(""))
    rows = [
        row(0, Media("image", "path", "f", where="a.png")),
        row(1, Media("image", "inline", "f", content=png())),
        row(2, Media("image", "url", "f", where="http://127.0.0.1:9/x")),
        row(3, Media("image", "path", "f", where="gone.png")),
        row(4, Media("audio", "inline", "f", content=wav(2.0))),
        row(5),
        row(6, Media("audio", "url", "f", where="http://127.0.0.1:9/y")),
    ]
    bad: dict[int, RowError] = {}

    seen, blind = sight.seen(rows, bad.__setitem__)

    assert {3} == blind == bad.keys()
    assert seen[0].media[0].digest == seen[1].media[0].digest != ""
    assert ("", 1024) == (seen[2].media[0].digest, seen[2].media[0].tokens)
    assert 50 == seen[4].media[0].tokens
    assert ("", 750) == (seen[6].media[0].digest, seen[6].media[0].tokens)
    assert rows[5] is seen[5]
    notes = " ".join(sight.notes())
    assert "2 images so far" in notes
    assert "2 images or pieces of audio have URLs" in notes
    assert "a guess" in notes
    assert "1 pieces of audio so far are counted as tokens: 25 a second, an estimate" in notes


def test_image_over_the_context_is_a_row_error_and_equal_texts_of_other_images_are_asked(
    tmp_path: Path,
) -> None:
    model = folder_of(tmp_path, "qwen2_vl", **QWEN)
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for c in messages[0].content %}{{ '<' + c.type + '>' if c.type != 'text' else c.text }}{% endfor %}"
    )
    engine = {"model": model, "chat_template": str(template)}
    limits = Limits(max_model_tokens=512, media=("image",))
    measure = opened(limits, engine=engine)
    small, other, large = png(56, 56), png(56, 56, (0, 0, 9)), png(1000, 1000)
    images = [Media("image", "inline", "f", content=c) for c in (small, large, small, other)]
    bad: dict[int, RowError] = {}

    prompts = measure.prompts([row(i, one) for i, one in enumerate(images)], bad.__setitem__)
    copies, _ = find_copies(prompts, "copy")

    assert [1] == list(bad)
    assert isinstance(bad[1], TooLong)
    assert "images and audio are not cut" in str(bad[1])
    assert [0, 2, 3] == prompts.keys
    assert {0: [2]} == copies
    text = len("<image>hi")
    assert [text + 3] * 3 == prompts.lengths().tolist()


HEARS = {"sampling_rate": 16_000, "hop_length": 160, "chunk_length": 30}


@pytest.mark.parametrize(
    ("samples", "rate", "tokens"),
    [
        (16_000, 16_000, 25),
        (16_159, 16_000, 25),
        (641, 16_000, 1),
        (300, 16_000, 0),
        (1, 16_000, 0),
        (44_100 * 2, 44_100, 50),
        (16_000 * 30, 16_000, 750),
        (16_000 * 400, 16_000, 750),
    ],
)
def test_qwen2_audio_counts_every_fourth_hop_at_its_own_rate_up_to_30_s(
    tmp_path: Path, samples: int, rate: int, tokens: int
) -> None:
    found = audio_tokens(folder_of(tmp_path, "qwen2_audio", **HEARS))

    assert (True, 16_000, 30.0) == (found.is_exact, found.rate, found.most_s)
    assert tokens == found.count(samples, rate)


def test_audio_of_a_model_that_is_not_known_is_estimated_and_its_rate_told(
    tmp_path: Path,
) -> None:
    found = audio_tokens(folder_of(tmp_path, "novel_hearing", sampling_rate=24_000))
    broken = audio_tokens(folder_of(tmp_path, "qwen2_audio", sampling_rate=[]))

    assert (False, 24_000, 0.0) == (found.is_exact, found.rate, found.most_s)
    assert (False, 0) == (broken.is_exact, broken.rate)
    assert 50 == found.count(16_000, 8_000)


def test_audio_too_short_to_be_heard_is_refused_and_audio_heard_in_part_is_told(
    tmp_path: Path,
) -> None:
    model = folder_of(tmp_path, "qwen2_audio", **HEARS)
    sight = Sight(MediaConfig(), image_tokens(model), audio_tokens(model))
    lengths = [0.01, 30.0, 31.0]
    rows = [
        row(i, Media("audio", "inline", "f", content=wav(s))) for i, s in enumerate(lengths)
    ]
    bad: dict[int, RowError] = {}

    seen, blind = sight.seen(rows, bad.__setitem__)

    assert {0} == blind
    assert "audio of 0.01 s, too short" in str(bad[0])
    # The prompt holds one token in the place of each.
    assert [749, 749] == [one.media[0].tokens for one in seen[1:]]
    assert "1 pieces of audio so far are longer than 30 s" in " ".join(sight.notes())


def test_template_that_prints_lists_is_not_shown_any() -> None:
    measure = opened(Limits(max_model_tokens=512, media=("image",)))
    bad: dict[int, RowError] = {}

    measure.prompts([row(0, Media("image", "inline", "f", content=png()))], bad.__setitem__)

    assert "knows no images" in str(bad[0])


def test_what_may_be_read_is_no_part_of_the_identity() -> None:
    from rowmill.executors.identity import identity

    def of(**media: object) -> dict[str, object]:
        job = Job.model_validate({"engine": {"name": "echo"}, "media": media})
        return identity(job, opened())

    assert of() == of(hosts=["h.org"], threads=3, folder="/d")
    assert of() != of(images=["photo"])
