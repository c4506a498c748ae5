"""tokenizer.json -> Tokenizer, by the library `tokenizers`.

Promises: the ids that the file describes; truncation and padding written in the file are ignored;
data that looks like a control token can be encoded as the plain text it is.
Knows nothing of: chat templates beyond carrying their text.
Memory: the vocabulary; twice, once data with control tokens has been met.
Source: `encode_batch_fast` releases the interpreter lock and uses all cores;
taking ids out adds 25 to 40 ns a token, under 1 % of encoding it (measured, tokenizers 0.23).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from rowmill.errors import ConfigError
from rowmill.rows import Ids
from rowmill.tokens.answers import AnswerTexts
from rowmill.tokens.longest import longest_token
from rowmill.tokens.protocol import PairParts, Spans, Stops

_NAMED = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
)


class JsonTokenizer:
    """A tokenizer whose whole description is one JSON text."""

    def __init__(
        self,
        description: str,
        *,
        named_tokens: Mapping[str, str],
        chat_template: str = "",
        max_model_tokens: int = 0,
    ) -> None:
        self._description = description
        self._library = Library.from_str(description)
        self._library.no_truncation()
        self._library.no_padding()
        self.named_tokens = named_tokens
        self.bos = named_tokens.get("bos_token", "")
        self.eos = named_tokens.get("eos_token", "")
        self.chat_template = chat_template
        self.max_model_tokens = max_model_tokens
        self._added = {
            token.content: (number, token)
            for number, token in self._library.get_added_tokens_decoder().items()
            if token.special and token.content
        }
        self.specials = tuple(self._added)
        self.special_ids = tuple(number for number, _ in self._added.values())
        size = self._library.get_vocab_size(with_added_tokens=True)
        self.vocab_size = max((size, *(number + 1 for number in self.special_ids)))
        self.digest = xxhash.xxh3_128_hexdigest(description.encode())

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> tuple[Ids, Stops]:
        try:
            encodings = self._library.encode_batch_fast(
                list(texts), add_special_tokens=add_special
            )
        except TypeError:
            "".join(texts).encode()  # raises where the cause is half a character
            raise
        return _packed([encoding.ids for encoding in encodings])

    def encode_marked(
        self, texts: Sequence[str], mark: str, *, add_special: bool
    ) -> tuple[Ids, Stops]:
        rows = [self._marked_ids(text, mark) for text in texts]
        if add_special:
            rows = [self.around[0] + row + self.around[1] for row in rows]
        return _packed(rows)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return str(self._library.decode(list(ids), skip_special_tokens=skip_special))

    def spans(self, text: str) -> Spans:
        encoding = self._plain_at_start.encode(text, add_special_tokens=False)
        places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        return Spans(np.array(encoding.ids, np.uint32), places[:, 0], places[:, 1])

    def answer_texts(self) -> AnswerTexts:
        """For an engine that gives answers as ids: decodes many at once."""
        return AnswerTexts(self._library)

    def _marked_ids(self, text: str, mark: str) -> list[int]:
        ids: list[int] = []
        is_start = True
        for piece, token in self._pieces(text):
            plain = piece.replace(mark, "")
            if plain:
                library = self._plain_at_start if is_start else self._plain_later
                ids += library.encode(plain, add_special_tokens=False).ids
            if token is not None:
                ids.append(token)
            is_start = False
        return ids

    def _pieces(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Text between control tokens, and the id of the token behind it; None at the end."""
        start, strip_next = 0, False
        for match in self._pattern.finditer(text):
            number, token = self._added[match.group()]
            piece = text[start : match.start()]
            piece = piece.lstrip() if strip_next else piece
            yield piece.rstrip() if token.lstrip else piece, number
            start, strip_next = match.end(), token.rstrip
        yield text[start:].lstrip() if strip_next else text[start:], None

    @cached_property
    def longest_token(self) -> int:
        """Looked for once a text is so long that it matters: large vocabularies take a while to parse."""
        return longest_token(json.loads(self._description))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.specials, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    @cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """What `add_special` puts around a text, seen on one: the ids its bare encoding lacks."""
        whole = self._library.encode("a", add_special_tokens=True).ids
        bare = self._library.encode("a", add_special_tokens=False).ids
        for at in range(len(whole) - len(bare) + 1):
            if whole[at : at + len(bare)] == bare:
                return whole[:at], whole[at + len(bare) :]
        return [], []

    @cached_property
    def pair_parts(self) -> PairParts:
        """Seen on one pair: the library marks which of its tokens are whose."""
        whole = self._library.encode("a", "a", add_special_tokens=True)
        sides, ids = whole.sequence_ids, whole.ids
        first, second = (
            [at for at, side in enumerate(sides) if side == number] for number in (0, 1)
        )
        return PairParts(
            ids[: first[0]],
            ids[first[-1] + 1 : second[0]],
            ids[second[-1] + 1 :],
            tells_apart=1 in whole.type_ids,
        )

    @cached_property
    def _plain_at_start(self) -> Library:
        return _without_specials(json.loads(self._description))

    @cached_property
    def _plain_later(self) -> Library:
        """As `_plain_at_start`, for a piece that is not the text's first: no space is put before it."""
        description = json.loads(self._description)
        if not _forbid_later_prefix(description.get("pre_tokenizer")):
            return self._plain_at_start
        return _without_specials(description)


def _packed(rows: Sequence[list[int]]) -> tuple[Ids, Stops]:
    packed = array("I")
    for row in rows:
        packed.fromlist(row)
    stops = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
    return np.frombuffer(packed, np.uint32), stops


def _without_specials(description: dict[str, Any]) -> Library:
    library = Library.from_str(json.dumps(description))
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    return library


def _forbid_later_prefix(part: Any) -> bool:
    """Turn "a space before the first piece only" off, in place; True where it was on."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "Sequence":
        found = [_forbid_later_prefix(child) for child in part.get("pretokenizers", ())]
        return any(found)
    if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
        part["prepend_scheme"] = "never"
        return True
    return False


def open_folder(path: Path, setting: str) -> JsonTokenizer:
    """Open a folder with tokenizer.json, or that file; what lies beside it tells the rest.

    Raises:
        ConfigError: no tokenizer.json there, or a file that cannot be read.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    folder = file.parent
    if not file.is_file():
        reason = (
            f"`{setting}`: `{path}` holds no tokenizer.json;"
            " give a folder that does, or save one with `tokenizers`"
        )
        raise ConfigError(reason=reason)
    settings = _json_object(folder / "tokenizer_config.json")
    names = {**_json_object(folder / "special_tokens_map.json"), **settings}
    named = {name: text for name in _NAMED if (text := _token_text(names.get(name)))}
    try:
        return JsonTokenizer(
            file.read_text(encoding="utf-8"),
            named_tokens=named,
            chat_template=_template(folder, settings),
            max_model_tokens=_context(_json_object(folder / "config.json"), settings),
        )
    except Exception as error:  # the library raises bare Exception for every mistake in a file
        reason = f"`{setting}`: `{file}` is no tokenizer: {type(error).__name__}: {error}"
        raise ConfigError(reason=reason) from error


def _json_object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        reason = f"`{file}` is no JSON: {error}"
        raise ConfigError(reason=reason) from error
    return value if isinstance(value, dict) else {}


def _token_text(value: Any) -> str:
    """A token in either spelling: its text, or an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _template(folder: Path, settings: Mapping[str, Any]) -> str:
    """chat_template.jinja, else the one in tokenizer_config.json; of several, the default one."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else ""


def _context(model: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Context length of the model, else of its tokenizer; huge stand-ins for "none" count as unknown."""
    for value in (model.get("max_position_embeddings"), settings.get("model_max_length")):
        if isinstance(value, int | float) and 0 < value < 2**40:
            return int(value)
    return 0


def control_token(text: str, *, is_control: bool) -> AddedToken:
    """An added token that is matched anywhere in a text."""
    return AddedToken(text, special=is_control, normalized=False)
