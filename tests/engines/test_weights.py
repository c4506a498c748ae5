"""Pickled weights are read only where the job says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.config import EngineConfig
from rowmill.engines import vllm
from rowmill.engines.vllm_options import checked, engine_arguments
from rowmill.engines.weights import pickled_only


def model_with(folder: Path, *names: str) -> str:
    folder.mkdir(exist_ok=True)
    for name in ("config.json", *names):
        (folder / name).write_text("{}")
    return str(folder)


def mistakes(model: str, **options: object) -> list[str]:
    return vllm.check_options(
        EngineConfig.model_validate({"name": "vllm", "model": model, **options})
    )


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.ckpt"])
def test_pickled_weights_need_consent_by_name(tmp_path: Path, name: str) -> None:
    model = model_with(tmp_path / "m", name)

    (told,) = mistakes(model)

    assert name in told
    assert 'set `engine.load_format = "pt"`' in told
    assert [] == mistakes(model, load_format="pt")
    assert [] == mistakes(model, load_format="dummy")


def test_safetensors_beside_them_are_what_is_read(tmp_path: Path) -> None:
    names = ("pytorch_model.bin", "model.safetensors")

    assert [] == mistakes(model_with(tmp_path / "m", *names))
    assert "" == pickled_only(tmp_path / "no such folder")


def test_pickled_adapter_is_refused(tmp_path: Path) -> None:
    model = model_with(tmp_path / "m", "model.safetensors")
    adapter = model_with(tmp_path / "a", "adapter_config.json", "adapter_model.bin")

    (told,) = mistakes(model, loras={"mine": adapter})

    assert told.startswith("`engine.loras.mine`: the weights")


def test_pickles_on_the_hub_are_left_there() -> None:
    engine = EngineConfig.model_validate({"name": "vllm", "model": "org/model"})
    named = engine_arguments(engine, checked(engine))
    asked = engine.model_copy(update={}).model_validate(
        {**engine.model_dump(), "load_format": "pt"}
    )

    assert {"*.bin", "*.pt", "*.pth"} <= set(named["ignore_patterns"])
    assert named["trust_remote_code"] is False
    assert "ignore_patterns" not in engine_arguments(asked, checked(asked))
