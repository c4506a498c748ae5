from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import EngineConfig
from rowmill.errors import ConfigError
from rowmill.tokens import ByteTokenizer, Tokenizer, open_tokenizer
from rowmill.tokens.gguf_file import read_metadata
from tests.strategies import TEXTS
from tests.tokens.gguf_copy import write_metadata

TINY = Path(__file__).parent.parent / "golden" / "tiny_tokenizer"


def tiny(folder: Path = TINY) -> Tokenizer:
    tokenizer = open_tokenizer(EngineConfig(tokenizer=str(folder)))
    assert tokenizer is not None
    return tokenizer


def rows(tokenizer: Tokenizer, texts: list[str], *, add_special: bool) -> list[list[int]]:
    ids, stops = tokenizer.encode_batch(texts, add_special=add_special)
    assert ids.dtype == np.uint32
    assert stops.dtype == np.int64
    assert len(stops) == len(texts)
    return [part.tolist() for part in np.split(ids, stops)][: len(texts)]


@given(st.lists(TEXTS, max_size=5))
def test_bytes_are_the_ids_of_the_byte_tokenizer(texts: list[str]) -> None:
    tokenizer = ByteTokenizer()

    assert rows(tokenizer, texts, add_special=True) == [list(t.encode()) for t in texts]


@given(TEXTS)
def test_bytes_decode_to_the_text(text: str) -> None:
    assert ByteTokenizer().decode(list(text.encode())) == text


@given(st.lists(TEXTS, max_size=5))
def test_a_batch_of_the_library_gives_each_text_its_own_ids(texts: list[str]) -> None:
    plain = [text.replace("<", "") for text in texts]

    expected = [[0, *(5 + byte for byte in text.encode())] for text in plain]
    assert rows(tiny(), plain, add_special=True) == expected


def test_a_folder_brings_template_tokens_and_context() -> None:
    tokenizer = tiny()

    assert (tokenizer.bos, tokenizer.eos) == ("<s>", "</s>")
    assert tokenizer.specials == ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert tokenizer.max_model_tokens == 512
    assert tokenizer.vocab_size == 261
    assert "add_generation_prompt" in tokenizer.chat_template


def test_marked_control_tokens_are_text_and_others_are_parsed() -> None:
    ids, stops = tiny().encode_marked(["<s>a<\ufdd0s>"], "\ufdd0", add_special=False)

    assert ids.tolist() == [0, 5 + 97, *(5 + byte for byte in b"<s>")]
    assert stops.tolist() == [5]


def test_marked_text_gets_the_tokens_around_it_when_asked() -> None:
    ids, _ = tiny().encode_marked(["<\ufdd0s>"], "\ufdd0", add_special=True)

    assert ids.tolist() == [0, *(5 + byte for byte in b"<s>")]


@given(TEXTS)
def test_text_without_control_tokens_is_the_same_marked_or_not(text: str) -> None:
    tokenizer = tiny()
    plain = f"<s>{text.replace('<', '')}<|im_end|>"

    marked, _ = tokenizer.encode_marked([plain], "\ufdd0", add_special=False)
    assert marked.tolist() == rows(tokenizer, [plain], add_special=False)[0]


def test_space_beside_a_control_token_is_stripped_as_its_vocabulary_says(
    tmp_path: Path,
) -> None:
    description = json.loads((TINY / "tokenizer.json").read_text())
    for token in description["added_tokens"]:
        token["rstrip"] = token["content"] == "<|im_end|>"
        token["lstrip"] = token["content"] == "<|im_start|>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    tokenizer = tiny(tmp_path)
    text = "a \n<|im_start|> b<|im_end|> \n c"

    marked, _ = tokenizer.encode_marked([text], "\ufdd0", add_special=False)
    assert marked.tolist() == rows(tokenizer, [text], add_special=False)[0]


def test_a_space_is_put_before_the_first_piece_only(tmp_path: Path) -> None:
    vocabulary = [
        ["<unk>", 0.0],
        ["<s>", 0.0],
        ["\u2581", -1.0],
        ["a", -1.0],
        ["\u2581a", -0.5],
    ]
    description = {
        "added_tokens": [
            {"id": 1, "content": "<s>", "special": True, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        ],
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "first",
            "split": False,
        },
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocabulary},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    tokenizer = tiny(tmp_path)
    texts = ["a<s>a", "<s>a<s>a"]

    marked, _ = tokenizer.encode_marked(texts, "\ufdd0", add_special=False)
    expected, _ = tokenizer.encode_batch(texts, add_special=False)
    assert marked.tolist() == expected.tolist() == [4, 1, 3, 1, 3, 1, 3]


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    description = json.loads((TINY / "tokenizer.json").read_text())
    description["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    description["padding"] = {
        "strategy": {"Fixed": 32},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 2,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))

    assert rows(tiny(tmp_path), ["abcdefgh"], add_special=True) == rows(
        tiny(), ["abcdefgh"], add_special=True
    )


@pytest.mark.parametrize("tokenizer", [tiny(), ByteTokenizer()], ids=["json", "bytes"])
def test_half_a_character_is_an_encode_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode_batch(["a", "\ud800"], add_special=True)


def test_a_template_file_comes_before_the_one_in_the_settings(tmp_path: Path) -> None:
    for file in TINY.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("from the file")

    assert tiny(tmp_path).chat_template == "from the file"


def test_of_several_templates_the_default_one_counts(tmp_path: Path) -> None:
    templates = [{"name": "rag", "template": "x"}, {"name": "default", "template": "y"}]
    settings = {"chat_template": templates, "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))

    assert tiny(tmp_path).chat_template == "y"
    assert tiny(tmp_path).eos == "</s>"


@pytest.mark.parametrize(
    "engine",
    [
        EngineConfig(name="http", model="tiny"),
        EngineConfig(model="gpt-x"),
        EngineConfig(),
        EngineConfig(model=str(TINY), name="http"),
    ],
)
def test_no_tokenizer_where_nothing_names_one(engine: EngineConfig) -> None:
    assert open_tokenizer(engine) is None


def test_a_model_folder_brings_its_own_tokenizer() -> None:
    tokenizer = open_tokenizer(EngineConfig(model=str(TINY)))
    assert tokenizer is not None

    assert tokenizer.digest == tiny().digest


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "no tokenizer.json"), (b"{", "is no tokenizer")]
)
def test_what_is_no_tokenizer_is_a_config_error(
    content: bytes, said: str, tmp_path: Path
) -> None:
    if content:
        (tmp_path / "tokenizer.json").write_bytes(content)

    with pytest.raises(ConfigError, match=said):
        tiny(tmp_path)


def test_a_missing_place_is_named() -> None:
    with pytest.raises(ConfigError, match=r"`engine.tokenizer`: `/nowhere/at/all` does not"):
        tiny(Path("/nowhere/at/all"))


BYTES = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))]
ALL_BYTES = [*BYTES, *(chr(256 + n) for n in range(256 - len(BYTES)))]


def small_gguf(path: Path, **changed: object) -> Path:
    """A vocabulary of bytes and two control tokens."""
    tokens = [*ALL_BYTES, "hi", "<s>", "</s>", "<tool>"]
    pairs = {
        "general.architecture": "llama",
        "llama.context_length": 2048,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 257 + [3, 3, 4],
        "tokenizer.ggml.merges": ["h i"],
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
    }
    pairs.update({key.replace("__", "."): value for key, value in changed.items()})
    return write_metadata(path, {key: v for key, v in pairs.items() if v is not None})


def open_gguf(path: Path) -> Tokenizer:
    tokenizer = open_tokenizer(EngineConfig(model=str(path)))
    assert tokenizer is not None
    return tokenizer


def test_a_gguf_file_tells_all_about_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = open_gguf(small_gguf(tmp_path / "m.gguf"))

    assert tokenizer.max_model_tokens == 2048
    assert tokenizer.specials == ("<s>", "</s>")
    assert (tokenizer.bos, tokenizer.eos) == ("<s>", "</s>")
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.vocab_size == 260
    assert rows(tokenizer, ["hi<tool></s>"], add_special=True) == [[257, 256, 259, 258]]
    assert tokenizer.decode([256, 258]) == "hi"


def test_eos_is_added_where_the_file_says_so(tmp_path: Path) -> None:
    file = small_gguf(tmp_path / "m.gguf", tokenizer__ggml__add_eos_token=True)

    assert rows(open_gguf(file), ["hi"], add_special=True) == [[257, 256, 258]]


def test_bos_is_not_added_where_the_file_says_nothing(tmp_path: Path) -> None:
    file = small_gguf(tmp_path / "m.gguf", tokenizer__ggml__add_bos_token=None)

    assert rows(open_gguf(file), ["hi"], add_special=True) == [[256]]


@pytest.mark.parametrize(
    ("key", "value"), [("model", "llama"), ("pre", "tekken"), ("pre", None), ("model", None)]
)
def test_a_vocabulary_of_unknown_kind_is_refused(
    key: str, value: str | None, tmp_path: Path
) -> None:
    file = small_gguf(tmp_path / "m.gguf", **{f"tokenizer__ggml__{key}": value})

    with pytest.raises(ConfigError, match=r"set `engine.tokenizer` to the model's"):
        open_gguf(file)


def test_a_vocabulary_without_merges_is_refused(tmp_path: Path) -> None:
    file = small_gguf(tmp_path / "m.gguf", tokenizer__ggml__merges=None)

    with pytest.raises(ConfigError, match=r"lacks `tokenizer\.ggml\.merges`"):
        open_gguf(file)


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenizer__ggml__bos_token_id": 999},
        {"tokenizer__ggml__token_type": [1]},
        {"tokenizer__ggml__merges": ["no such"]},
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_a_config_error(
    changed: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="vocabulary cannot be read"):
        open_gguf(small_gguf(tmp_path / "m.gguf", **changed))


@given(st.data())
def test_a_cut_gguf_file_is_a_config_error(tmp_path: Path, data: st.DataObject) -> None:
    whole = small_gguf(tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])

    with pytest.raises(ConfigError, match="no whole GGUF file"):
        read_metadata(cut)


@given(st.binary(max_size=200))
def test_any_bytes_are_metadata_or_a_config_error(tmp_path: Path, noise: bytes) -> None:
    file = tmp_path / "noise.gguf"
    file.write_bytes(b"GGUF\x03\0\0\0" + noise)
    try:
        pairs = read_metadata(file)
    except ConfigError as error:
        assert "fetch it again" in str(error)  # noqa: PT017 - either end is right
    else:
        assert isinstance(pairs, dict)
