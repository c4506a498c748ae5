"""Parent <-> engine child: framed messages over a pair of sockets.

Promises: a message arrives whole or not at all; token ids are never copied into an intermediate form:
they leave from the array they lie in and arrive in one of their own.
Knows nothing of: processes, engines, restarts.
Memory: the message being sent or received.

A frame is u32 length of the head, u64 length of the tail, the head (MessagePack of a tagged Struct),
the tail (the token ids of `Ask`, the lines of `Answers`, else nothing).
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np

from rowmill.media_item import Media
from rowmill.outcomes import Outcomes
from rowmill.rows import Ids, Limits, Pair, Piece, Prompts, Sampling

T = TypeVar("T")

_FRAME = struct.Struct("<IQ")
_SOCKET_BYTES = 4 << 20
"""Asked for in both directions; the kernel gives what it allows. A full socket costs a switch of process."""


class Open(msgspec.Struct, tag="open"):
    """Parent: open this engine."""

    engine: dict[str, Any]
    """Fields of `EngineConfig`, options among them."""


class Ready(msgspec.Struct, tag="ready"):
    """Child: the engine is open."""

    limits: Limits


class Ask(msgspec.Struct, tag="ask"):
    """Parent: rows to answer. `prompts()` of the channel is how they are read."""

    keys: list[int]
    stops: bytes
    max_tokens: list[int]
    samplings: list[Sampling]
    sampling_of: list[int]
    wires: list[bytes]
    wire_fields: list[str]
    pieces: dict[int, list[Piece]] = {}
    cut_from: dict[int, int] = {}
    media: dict[int, list[Media]] = {}
    pairs: dict[int, list[Pair]] = {}


class Answers(msgspec.Struct, tag="answers"):
    """Child: outcomes, in any order. `outcomes` of the channel is how they are read."""

    keys: bytes
    marks: bytes
    tokens: bytes


class Gauge(msgspec.Struct, tag="gauge"):
    """Child: how it stands, now and then."""

    in_flight: int
    """Rows the engine took and has not answered."""
    waiting: int
    """Batches the child holds that the engine did not take yet."""
    cpu_s: float
    """Processor time of the child so far, its threads included."""
    running: int = 0
    """Rows that the engine's scheduler works on; this and what follows stay 0 where an engine has no such count."""
    steps: int = 0
    """Steps that the engine made so far: progress within rows."""
    waiting_rows: int = 0
    """Rows that the engine took and its scheduler has no seat for yet."""
    kv_use: float = 0.0
    """Share of the KV cache that is taken."""
    preemptions: int = 0
    """Rows computed again because the KV cache was full, so far."""
    hit_rate: float = 0.0
    """Share of prompt tokens that were found in the prefix cache, so far."""
    filled_share: float = 0.0
    """Of engines that fill steps up to their longest row: share of the tokens computed so far that was filling."""
    seats: int = 0
    """Rows worth giving it at once now, where that changes; 0: as many as it said when it opened."""
    retries: dict[str, int] = {}
    """Requests that failed in passing and were made again, by cause, so far."""
    notes: list[str] = []
    """What people should know, so far."""


class Fatal(msgspec.Struct, tag="fatal"):
    """Child: it ends, and why: the class of errors.py with its fields."""

    kind: str
    fields: dict[str, Any]


class End(msgspec.Struct, tag="end"):
    """Parent: no more rows will come."""


class Drain(msgspec.Struct, tag="drain"):
    """Parent: drop rows that the engine did not take yet, and end once the others are answered."""


class AtOnce(msgspec.Struct, tag="at-once"):
    """Parent: let the engine have no more rows at a time than this, from now on; 0: as many as it takes."""

    rows: int


class Bye(msgspec.Struct, tag="bye"):
    """Child: all is answered."""


Message = Open | Ready | Ask | Answers | Gauge | Fatal | End | Drain | AtOnce | Bye


class ChannelClosed(Exception):
    """The other side is gone; a half message may have been lost with it."""


class Channel:
    """One end. Sending and receiving may go on in two threads; each alone needs a lock of the caller's."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Message)
        self._prefix = bytearray(_FRAME.size)
        self._on_quiet: Callable[[], None] | None = None

    def send(self, message: Message) -> None:
        """Send a message; blocks while the socket is full.

        Raises:
            ChannelClosed: The other side is gone.
        """
        self._send(self._encoder.encode(message), memoryview(b""))

    def send_prompts(self, prompts: Prompts) -> None:
        """Send rows as `Ask`; blocks while the socket is full.

        Raises:
            ChannelClosed: The other side is gone.
        """
        ask = Ask(
            keys=prompts.keys,
            stops=prompts.stops.tobytes(),
            max_tokens=prompts.max_tokens,
            samplings=prompts.samplings,
            sampling_of=prompts.sampling_of,
            wires=prompts.wires,
            wire_fields=prompts.wire_fields,
            pieces=_of(prompts.pieces, prompts.keys),
            cut_from=_of(prompts.cut_from, prompts.keys),
            media=_of(prompts.media, prompts.keys),
            pairs=_of(prompts.pairs, prompts.keys),
        )
        ids = np.ascontiguousarray(prompts.ids, dtype=np.uint32)
        self._send(self._encoder.encode(ask), ids.view(np.uint8).data)

    def send_outcomes(self, outcomes: Outcomes) -> None:
        """Send outcomes as `Answers`; blocks while the socket is full.

        Raises:
            ChannelClosed: The other side is gone.
        """
        columns = (outcomes.keys, outcomes.marks, outcomes.tokens)
        answers = Answers(*(column.tobytes() for column in columns))
        self._send(self._encoder.encode(answers), memoryview(outcomes.lines))

    def receive(self) -> tuple[Message, Prompts | Outcomes | None]:
        """The next message, and its rows where it is an `Ask` or its outcomes where it is an `Answers`.

        Raises:
            ChannelClosed: The other side is gone, or sent what is no message.
        """
        self._fill(memoryview(self._prefix))
        head_bytes, tail_bytes = _FRAME.unpack(self._prefix)
        head = bytearray(head_bytes)
        self._fill(memoryview(head))
        try:
            message: Message = self._decoder.decode(head)
        except msgspec.DecodeError as error:
            # Nothing behind it can be trusted; a row that makes an adapter say it is found like one that kills.
            raise ChannelClosed(str(error)) from error
        if isinstance(message, Ask):
            ids = np.empty(tail_bytes // 4, dtype=np.uint32)
            self._fill(ids.view(np.uint8).data)
            return message, _prompts(message, ids)
        if isinstance(message, Answers):
            lines = bytearray(tail_bytes)
            self._fill(memoryview(lines))
            return message, _outcomes(message, bytes(lines))
        return message, None

    def on_quiet(self, each_s: float, call: Callable[[], None] | None) -> None:
        """Have `call` called by whoever waits in `receive`, each time nothing came for `each_s`; it may raise."""
        self._on_quiet = call
        seconds, rest = divmod(each_s, 1.0)
        timeout = struct.pack("@ll", int(seconds), int(rest * 1e6)) if call else bytes(16)
        # The kernel's own timeout: the socket stays a blocking one, which is one system call a message.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)

    def close(self) -> None:
        """Close this end; a thread that waits in `receive` of this end is woken."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _send(self, head: bytes, tail: memoryview) -> None:
        parts = [
            memoryview(_FRAME.pack(len(head), len(tail))),
            memoryview(head),
            tail,
        ]
        try:
            while parts:
                sent = self._sock.sendmsg(parts)
                while parts and sent >= len(parts[0]):
                    sent -= len(parts.pop(0))
                if parts:
                    parts[0] = parts[0][sent:]
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def _fill(self, room: memoryview) -> None:
        while room:
            try:
                count = self._sock.recv_into(room, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                if self._on_quiet is not None:
                    self._on_quiet()
                continue
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not count:
                reason = "end of stream"
                raise ChannelClosed(reason)
            room = room[count:]


def _of(found: dict[int, T], keys: list[int]) -> dict[int, T]:
    """What is there of some rows: parts of a window share the whole window's."""
    return {key: found[key] for key in keys if key in found} if found else {}


def _prompts(ask: Ask, ids: Ids) -> Prompts:
    return Prompts(
        keys=ask.keys,
        ids=ids,
        stops=np.frombuffer(ask.stops, dtype=np.int64),
        max_tokens=ask.max_tokens,
        samplings=ask.samplings,
        sampling_of=ask.sampling_of,
        wires=ask.wires,
        wire_fields=ask.wire_fields,
        pieces=ask.pieces,
        cut_from=ask.cut_from,
        media=ask.media,
        pairs=ask.pairs,
    )


def _outcomes(answers: Answers, lines: bytes) -> Outcomes:
    return Outcomes(
        keys=np.frombuffer(answers.keys, np.uint64),
        marks=np.frombuffer(answers.marks, np.uint8),
        tokens=np.frombuffer(answers.tokens, np.uint32).reshape(3, -1),
        lines=lines,
    )


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: wrap one in a `Channel`, give the other's number to the child."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
