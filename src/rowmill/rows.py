"""One record for each station of a row's journey: Row -> Request -> Prompts -> Outcome.

Promises: a row's key is (shard, ordinal) packed into one integer; the user's id never is a key.
Knows nothing of: files, engines, threads.
Memory: token ids of many rows lie in one packed uint32 buffer with offsets;
a Struct a row for the rest (measured: 0.17 us a Struct, 0.33 us a row of packed ids through a pipe).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.choice import NULL as NULL
from rowmill.choice import Choice as Choice
from rowmill.choice import Chunk as Chunk
from rowmill.choice import ToolCall as ToolCall
from rowmill.limits import Limits as Limits
from rowmill.media_item import Media
from rowmill.wanted import Wanted as Wanted

ORDINAL_BITS = 40
ORDINAL_MASK = (1 << ORDINAL_BITS) - 1

Ids = npt.NDArray[np.uint32]
Status = Literal["ok", "error"]


def pack_key(shard: int, ordinal: int) -> int:
    """The key of a row: `shard` in the high 24 bits, `ordinal` (line within the shard) in the low 40."""
    return shard << ORDINAL_BITS | ordinal


def unpack_key(key: int) -> tuple[int, int]:
    """(shard, ordinal) of a key."""
    return key >> ORDINAL_BITS, key & ORDINAL_MASK


Format = Literal["jsonl", "csv", "parquet", "arrow"]
"""How a shard is read; what else people have (gzip, arrays, standard input) is spooled into one of these."""
Partitions = tuple[tuple[str, str | None], ...]
"""(column, value) of the folders a file lies in, `region=007`; None is Hive's name for null."""


class CsvLayout(msgspec.Struct, frozen=True):
    """What must be known of a CSV file to read a slice of it."""

    columns: tuple[str, ...]
    delimiter: str
    quote: str
    """Empty: quotes mean nothing."""


class Shard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slice of one input file that can be read alone."""

    index: int
    path: str
    """Where to open it: as the user gave it, resolved; of a spooled file, its spool."""
    name: str
    """How messages and results name the file: relative to the source, `/` between parts."""
    start: int
    """First byte of the slice, in the text as it is once unpacked; in tables, the first row."""
    stop: int
    """One past its last byte or row; a slice of lines ends behind a newline, or at the end of the file."""
    first_line: int
    """1-based number of the slice's first line in its file; in CSV, of its first record; in tables, of its first row."""
    num_lines: int
    """Lines (records, rows) in the slice, blank ones counted: a row's ordinal is its line's offset here."""
    format: Format = "jsonl"
    frame: tuple[int, int] | None = None
    """Of a spooled slice: first byte of its zstd frame in the spool and one past the last; the frame is the slice."""
    num_bytes: int = 0
    """Bytes of a table's slice, about; lines have `stop - start`."""
    csv: CsvLayout | None = None
    partitions: Partitions = ()
    version: str = ""
    """Of an object in a store, the one that was counted: another is never read for it."""

    @property
    def weight(self) -> int:
        """Bytes of input that the slice stands for, about."""
        return self.num_bytes or self.stop - self.start


class Row(msgspec.Struct, frozen=True, gc=False):
    """One non-blank line of the input, body kept raw."""

    key: int
    line: bytes


class RowColumns(Protocol):
    """Neighbouring rows of a table as columns; see read/table.py."""

    mean_bytes: int
    """Bytes of a row, about."""
    names: Sequence[str]
    num_rows: int

    def values(self, name: str) -> list[Any]:
        """One column as Python values: strings, ints, None for null; what else it may hold is opaque."""
        ...

    def line(self, at: int) -> bytes:
        """Row `at` as one JSON object."""
        ...

    def is_binary(self, name: str) -> bool:
        """Whether a column holds bytes: as JSON has them, they are base64."""
        ...


class TableRow(msgspec.Struct, frozen=True, gc=False):
    """One row of a table. It looks as a `Row` does; its line is made when somebody asks for it."""

    key: int
    columns: RowColumns
    at: int

    @property
    def line(self) -> bytes:
        """The row as one JSON object; types as docs/rules.md says."""
        return self.columns.line(self.at)


AnyRow = Row | TableRow


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the answer of a row is drawn. `None` leaves the choice to the engine."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logprobs: int | None = None
    """Log-probabilities of this many most likely tokens at each position; 0 is the chosen one's alone."""
    choices: tuple[str, ...] = ()
    """The answer is exactly one of these strings."""
    schema: str = ""
    """JSON text of the JSON Schema the answer must follow; empty for none."""
    regex: str = ""
    ignore_eos: bool = False
    return_token_ids: bool = False
    tools: str = ""
    """JSON text of the tools that the row is asked with, for engines that read calls out of answers; empty for none."""
    lora: str = ""
    """Name of the adapter that answers, of those the engine was opened with; empty: the model itself."""
    seed_per_row: bool = False
    """The row draws with a seed made of its key and `seed`: the same in each start of a run."""
    extra: str = ""
    """JSON text of an object with fields passed through to an endpoint untouched; empty for none."""

    @property
    def is_greedy(self) -> bool:
        """True where equal prompts must get equal answers: one sample, no draw."""
        return self.temperature == 0 and self.n == 1


class Request(msgspec.Struct, frozen=True, gc=False):
    """A row that can be asked: exactly one of `text`, `messages`, `ids` is set."""

    key: int
    sampling: Sampling
    id: bytes = b""
    """JSON text of the user's own id, in one canonical spelling; empty where the row has none."""
    text: str | None = None
    """A raw prompt: special tokens in it are parsed, BOS is added as the tokenizer says."""
    messages: Sequence[dict[str, Any]] | None = None
    """A conversation, checked and normal: contents are strings, tool arguments are objects. Where there are images or
    audio, contents are lists of parts, `{"type": "image"}` in the place of each."""
    ids: Sequence[int] | None = None
    """Token ids as given; they are passed on untouched."""
    tools: Sequence[dict[str, Any]] | None = None
    wire: bytes = b""
    """What an endpoint is sent: JSON of the `messages` or `prompt` as they stood in the row, or a whole body."""
    wire_field: str = ""
    """`messages` or `prompt`: the name under which `wire` goes into the body; or the path that a whole body goes to."""
    data_spans: Sequence[str] = ()
    """`text` in pieces, what the template says and what columns say in turn: odd ones are data."""
    media: Sequence[Media] = ()
    """Images and audio in the order in which they stand; in `wire` a NUL byte is in the place of each."""
    documents: Sequence[str] | None = None
    """What `text`, a query then, is held against, one by one."""


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a row's token ids that is embedded alone."""

    tokens: int
    start: int
    """First character of the text that it holds."""
    stop: int
    """One past the last."""


class Pair(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A query and a document as one text of a row's token ids."""

    tokens: int
    second: int
    """The first of them that is the document's, as the model tells the two apart."""


class Prompts(msgspec.Struct):
    """Rows ready for an engine, as columns; also what crosses the channel as a batch.

    Shapes: R rows, T tokens in all. `ids` T uint32; `stops` R int64, `stops[i]` one past row i's last token.
    """

    keys: list[int]
    ids: Ids
    stops: npt.NDArray[np.int64]
    max_tokens: list[int]
    """Most tokens each row may generate, already checked against the context; 0 where the engine decides."""
    samplings: list[Sampling]
    """Distinct sampling settings of these rows."""
    sampling_of: list[int]
    """Index into `samplings` for each row."""
    wires: list[bytes]
    """For engines that take bodies: one JSON text a row; empty list for engines that take token ids."""
    wire_fields: list[str]
    replica_of: list[int] = []
    """Of engines side by side, the one that each row is best asked of; empty list: any."""
    pieces: dict[int, list[Piece]] = {}
    """By key, of rows whose text is embedded in parts: their ids are those of the parts, one behind the other."""
    cut_from: dict[int, int] = {}
    """By key, of rows whose text was cut: the tokens that it had."""
    media: dict[int, list[Any]] = {}
    """By key: images and audio of rows that have any, each a `Media`; in an engine's feed, each a `Loaded`."""
    pairs: dict[int, list[Pair]] = {}
    """By key, of rows that are scored: their ids are those of the pairs, one behind the other."""

    def __len__(self) -> int:
        return len(self.keys)

    def starts(self) -> npt.NDArray[np.int64]:
        """Where each row's tokens begin in `ids`; R int64."""
        return np.concatenate((np.zeros(1, np.int64), self.stops))[:-1]

    def take(self, rows: Sequence[int]) -> Prompts:
        """The given rows, in the given order, as Prompts of their own."""
        starts, stops = self.starts(), self.stops
        parts = [self.ids[starts[i] : stops[i]] for i in rows]
        lengths = np.fromiter((len(p) for p in parts), np.int64, len(parts))
        return msgspec.structs.replace(
            self,
            keys=[self.keys[i] for i in rows],
            ids=np.concatenate(parts) if parts else np.empty(0, np.uint32),
            stops=np.cumsum(lengths),
            max_tokens=[self.max_tokens[i] for i in rows],
            sampling_of=[self.sampling_of[i] for i in rows],
            wires=[self.wires[i] for i in rows] if self.wires else [],
            wire_fields=[self.wire_fields[i] for i in rows] if self.wires else [],
            replica_of=[self.replica_of[i] for i in rows] if self.replica_of else [],
        )

    def slice(self, start: int, stop: int) -> Prompts:
        """Rows `start` to `stop`, without copying token ids."""
        first = int(self.stops[start - 1]) if start else 0
        last = int(self.stops[stop - 1]) if stop > start else first
        return msgspec.structs.replace(
            self,
            keys=self.keys[start:stop],
            ids=self.ids[first:last],
            stops=self.stops[start:stop] - first,
            max_tokens=self.max_tokens[start:stop],
            sampling_of=self.sampling_of[start:stop],
            wires=self.wires[start:stop],
            wire_fields=self.wire_fields[start:stop],
            replica_of=self.replica_of[start:stop],
        )

    @staticmethod
    def join(parts: Sequence[Prompts]) -> Prompts:
        """Rows of several batches as one, in their order; engines they are best asked of are kept where all parts name them."""
        if len(parts) == 1:
            return parts[0]
        firsts = accumulate((len(part.samplings) for part in parts), initial=0)
        lengths = [np.diff(part.stops, prepend=0) for part in parts]
        moved = [
            [i + n for i in part.sampling_of] for part, n in zip(parts, firsts, strict=False)
        ]
        joined: dict[str, Any] = {
            "ids": np.concatenate([part.ids for part in parts]),
            "stops": np.cumsum(np.concatenate(lengths)),
            "sampling_of": [i for some in moved for i in some],
        }
        for name in set(Prompts.__struct_fields__) - joined.keys():
            columns = [getattr(part, name) for part in parts]
            if isinstance(columns[0], dict):
                joined[name] = {key: one for column in columns for key, one in column.items()}
            elif name != "replica_of" or all(columns):
                joined[name] = [one for column in columns for one in column]
        return Prompts(**joined)

    def num_bytes(self) -> int:
        """Memory held, about."""
        media = sum(len(one.content) for some in self.media.values() for one in some)
        return self.ids.nbytes + sum(map(len, self.wires)) + 200 * len(self) + media

    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each row's prompt, what images and audio take of it included; R int64."""
        lengths: npt.NDArray[np.int64] = np.diff(self.stops, prepend=0).astype(np.int64)
        for i, key in enumerate(self.keys) if self.media else ():
            lengths[i] += sum(one.tokens for one in self.media.get(key, ()))
        return lengths

    def row_ids(self) -> Iterator[Ids]:
        """Each row's token ids, as views."""
        start = 0
        for stop in self.stops.tolist():
            yield self.ids[start:stop]
            start = stop


RESULT_PREFIX = "rowmill_"
"""What names of an outcome's fields begin with in segments, and in results unless the job says otherwise."""


def _result_name(field: str) -> str:
    return field if field == "key" else RESULT_PREFIX + field


class Outcome(msgspec.Struct, frozen=True, gc=False, rename=_result_name):
    """What became of a row: one schema for both fates, every field always there, but those at the end, which only
    jobs of some kinds have.

    `key` stays first: a result line is the source line, and this in JSON from behind the key on.
    """

    key: int
    status: Status
    text: str | None = None
    """First choice's text, without its reasoning and tool calls; null for a failed row, where the answer is no text (see
    `body`), and where it was cut before its reasoning ended."""
    finish_reason: str = ""
    choices: list[Choice] = []
    """All choices in index order where there is more to tell than `text`; else empty."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    """Over all choices."""
    max_tokens: int = 0
    """The limit in force, after clamping; 0 where none was set."""
    attempts: int = 0
    seconds: float = 0.0
    """From when the engine took the row to its answer."""
    copied_from: str | None = None
    """`FILE:LINE` of the equal row whose answer this is."""
    error_kind: str | None = None
    error: str | None = None
    """What, where, got what, allowed what, do what; null for a row that was answered."""
    parsed: msgspec.Raw = NULL
    """JSON value of `text` where it follows the row's schema; else null. Filled behind the engine, for all engines."""
    violation: str | None = None
    """Where and how `text` breaks its `schema`, `regex` or `choices`; null where it does not, or has none."""
    body: msgspec.Raw = NULL
    """The endpoint's answer as it came: of rows whose answer is no text, and of all with `engine.keep_body`."""
    reasoning: str | None = None
    """What the model said to itself before the first choice's text; null where it is not told apart, or there is none."""
    reasoning_tokens: int | None = None
    """Tokens of it, over all choices; null where nobody counted them. They are part of `output_tokens`."""
    tool_calls: list[ToolCall] = []
    """Functions that the first choice asks to be called."""
    media: list[str] = []
    """Of each image and piece of audio that was asked with, what it was: `sha256:` and the digest of the file."""
    embedding: bytes | msgspec.UnsetType | None = msgspec.UNSET
    """The text's vector: float32, little-endian; base64 in JSON. Null where there is none, or one for each chunk."""
    chunks: list[Chunk] | msgspec.UnsetType = msgspec.UNSET
    """The parts of a text that has a vector for each, in order; else empty."""
    cut_from: int | msgspec.UnsetType | None = msgspec.UNSET
    """Tokens of the whole text where a part of it was left out."""
    label: str | msgspec.UnsetType | None = msgspec.UNSET
    """The likeliest label."""
    probability: float | msgspec.UnsetType | None = msgspec.UNSET
    """Its probability."""
    probabilities: dict[str, float] | msgspec.UnsetType | None = msgspec.UNSET
    """Of each label, in the order of the job or of the model's files."""
    score: float | msgspec.UnsetType | None = msgspec.UNSET
    """How well a query and a document go together."""
    scores: list[float] | msgspec.UnsetType | None = msgspec.UNSET
    """The same of each document, in the order of the row."""
    ranking: list[int] | msgspec.UnsetType | None = msgspec.UNSET
    """Places of the documents in the row, from 0, the best first."""
