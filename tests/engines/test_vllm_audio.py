"""Audio through the real vLLM: all ways it may come, at any rate, and what is wrong with some; one start of the engine, and a
second one for a clip that is alone."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("vllm")
pytest.importorskip("soundfile")

from rowmill.media.tokens import audio_tokens  # noqa: E402 - behind what may be absent
from tests.cases.command import results, rowmill  # noqa: E402
from tests.media.servers import site  # noqa: E402
from tests.media.sounds_of import tone, wave  # noqa: E402

LIMIT_S = 400.0
LOW, HIGH = 440.0, 3000.0
CLIPS = {
    "low.wav": tone(LOW),
    "low.flac": tone(LOW, kind="FLAC"),
    "low.ogg": tone(LOW, kind="OGG"),
    "stereo.wav": tone(LOW, channels=2),
    "high.wav": tone(HIGH),
    "rate44.flac": tone(LOW, 70_000, rate=44_100, kind="FLAC"),
    "rate8.wav": tone(LOW, 8_000, rate=8_000),
    "long.wav": tone(LOW, 16_000 * 9),
    "half.flac": tone(LOW, 16_000 * 35, kind="FLAC"),  # of 35 s the model hears 30
}
BAD = {
    "cut.wav": (CLIPS["low.wav"][:9_000], "WAV audio that breaks off"),
    "cut.flac": (CLIPS["low.flac"][:9_000], "breaks off or is damaged"),
    "text.wav": (b"no audio", "no audio that can be read"),
    "empty.wav": (tone(num=0), "without a single sample"),
    "short.wav": (tone(num=200), "too short for this model"),
    "hour.wav": (tone(num=16_000 * 41, kind="FLAC"), "allowed are 40"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.hf_audio import audio_folder

    return audio_folder(tmp_path_factory.mktemp("models") / "tiny-audio")


def answered(model: Path, rows: list[dict[str, Any]], place: Path, **sets: Any) -> Any:
    """By id, results of rows of which each has messages, and clips in a column; and what was said of the run."""
    source = place.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "engine.dtype": "float32",
        "engine.enforce_eager": True,
        "engine.cpu_kv_gib": 1,
        "engine.max_model_len": 1024,
        "engine.seats": 8,
        "sampling.temperature": 0,
        "sampling.max_tokens": 6,
        "sampling.ignore_eos": True,
        "sampling.return_token_ids": True,
        "media.audio": "clip",
        "media.max_audio_s": 40,
        # Equal rows are all asked, so that they can differ.
        "plan.duplicates": "ask",
        **sets,
    }
    arguments = [str(source), "-o", str(place), "--engine", "vllm", "--model", str(model)]
    for name, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value)
        arguments += ["--set", f"{name}={text}"]
    done = rowmill("run", arguments, limit_s=LIMIT_S)
    assert done.code in (0, 4), done.stderr
    return {record["id"]: record for record in results(place)}, done.stdout + done.stderr


def column(name: str, clip: Any, text: str = "what?") -> dict[str, Any]:
    return {"id": name, "clip": clip, "messages": [{"role": "user", "content": text}]}


def chat(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    content = [*parts, {"type": "text", "text": "what?"}]
    return {"id": name, "clip": [], "messages": [{"role": "user", "content": content}]}


def said_of(record: dict[str, Any]) -> tuple[list[int], int]:
    return list(record["rowmill_choices"][0]["token_ids"]), record["rowmill_prompt_tokens"]


def test_every_way_is_heard_alike_and_bad_clips_are_their_own_rows_failures(
    tmp_path: Path, model: Path
) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    for name, content in (*CLIPS.items(), *((name, one) for name, (one, _) in BAD.items())):
        (folder / name).write_bytes(content)
    coded = b64encode(CLIPS["low.wav"]).decode()
    data = f"data:audio/wav;base64,{coded}"
    with site({"/low.wav": (200, CLIPS["low.wav"], "")}) as server:
        alike = [
            column("data", data),
            chat(
                "input",
                {"type": "input_audio", "input_audio": {"data": coded, "format": "wav"}},
            ),
            chat(
                "url",
                {"type": "audio_url", "audio_url": {"url": f"http://{server.host}/low.wav"}},
            ),
            chat("inline", {"type": "audio_url", "audio_url": {"url": data}}),
            *(column(f"again-{i}", "low.wav") for i in range(3)),
        ]
        rows = [column(name, name) for name in (*CLIPS, *BAD)]
        rows += [*alike, column("both", ["low.wav", "high.wav"]), column("none", [])]
        rows.append(column("context", ["half.flac"] * 2))
        sets = {"media.folder": str(folder), "media.hosts": json.dumps([server.host])}
        found, said = answered(model, rows, tmp_path / "out", **sets)
    alone, _ = answered(model, [column("alone", data)], tmp_path / "alone")

    wrong = {id: record["rowmill_error"] for id, record in found.items()}
    assert {*BAD, "context"} == {id for id, error in wrong.items() if error}, wrong
    assert "limit 1024" in wrong["context"]
    for name, (_, word) in BAD.items():
        assert word in wrong[name], wrong[name]
    low = said_of(found["low.wav"])
    # What loses nothing, and every way that it may come, beside others and alone.
    assert [low] * 9 == [said_of(found[row["id"]]) for row in alike] + [
        said_of(found["low.flac"]),
        said_of(alone["alone"]),
    ]
    answers = {tuple(said_of(found[name])[0]) for name in ("low.wav", "high.wav", "none")}
    assert len(answers) == 3, "it does not hear"

    hears = audio_tokens(str(model))
    text = said_of(found["none"])[1] + 2  # what stands around each clip
    lengths = dict.fromkeys(CLIPS, (16000, 16000))
    lengths |= {"rate44.flac": (70_000, 44_100), "rate8.wav": (8_000, 8_000)}
    lengths |= {"long.wav": (16_000 * 9, 16_000), "half.flac": (16_000 * 35, 16_000)}
    expected = {name: text + hears.count(*length) for name, length in lengths.items()}
    assert expected == {name: said_of(found[name])[1] for name in CLIPS}
    assert text + 2 + 2 * hears.count(16_000, 16_000) == said_of(found["both"])[1]
    assert "as qwen2_audio counts by its own files" in said
    assert "are longer than 30 s" in said


def test_other_rates_are_heard_as_the_models_own(tmp_path: Path, model: Path) -> None:
    """By the model's processor: what it makes of a clip at another rate is what it makes of the same at its own, nearly."""
    import numpy as np
    from transformers import AutoProcessor

    from rowmill.media.resample import resampled

    processor = AutoProcessor.from_pretrained(model)

    def features(samples: Any) -> Any:
        made = processor.feature_extractor(samples, sampling_rate=16_000, return_tensors="np")
        return made["input_features"][0][:, 10:80]

    own, other = features(wave(LOW, 16_000, 16_000)), features(wave(HIGH, 16_000, 16_000))
    for rate in (8_000, 44_100, 48_000):
        heard = features(resampled(wave(LOW, rate, rate), rate, 16_000))
        assert np.abs(heard - own).mean() < 0.1 * np.abs(other - own).mean()
