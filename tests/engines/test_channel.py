"""Messages between parent and child arrive as they were sent."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.channel import Channel, ChannelClosed, End, Gauge, pair
from rowmill.outcomes import Outcomes, pack
from rowmill.rows import Choice, Outcome, Prompts, Sampling


def channels() -> tuple[Channel, Channel]:
    ours, theirs = pair()
    return Channel(ours), Channel(theirs)


ROWS = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=20), max_size=20)


@given(ROWS, st.booleans())
def test_prompts_arrive_as_they_were_sent(rows: list[list[int]], has_wires: bool) -> None:
    count = len(rows)
    samplings = [Sampling(temperature=0.5, stop=("a",), choices=("x", "y")), Sampling()]
    sent = Prompts(
        keys=[(1 << 62) + i for i in range(count)],
        ids=np.array([i for row in rows for i in row], np.uint32),
        stops=np.cumsum([len(row) for row in rows], dtype=np.int64),
        max_tokens=[5] * count,
        samplings=samplings,
        sampling_of=[i % 2 for i in range(count)],
        wires=[b'"a\xff"'] * count if has_wires else [],
        wire_fields=["prompt"] * count if has_wires else [],
    )
    here, there = channels()
    here.send_prompts(sent)
    _, got = there.receive()
    here.close()
    there.close()

    assert isinstance(got, Prompts)
    assert rows == [ids.tolist() for ids in got.row_ids()]
    assert (sent.keys, sent.samplings, sent.sampling_of) == (
        got.keys,
        got.samplings,
        got.sampling_of,
    )
    assert (sent.max_tokens, sent.wires, sent.wire_fields) == (
        got.max_tokens,
        got.wires,
        got.wire_fields,
    )


@pytest.mark.parametrize(
    "sent",
    [
        Gauge(1, 2, 0.5),
        Gauge(1, 2, 0.5, running=3, waiting_rows=4, kv_use=0.25, preemptions=5, hit_rate=0.75),
    ],
)
def test_what_an_engine_counts_of_itself_arrives(sent: Gauge) -> None:
    here, there = channels()
    here.send(sent)
    got, _ = there.receive()
    here.close()
    there.close()

    assert sent == got


def test_part_of_a_larger_batch_is_sent_alone() -> None:
    whole = Prompts(
        list(range(4)),
        np.arange(8, dtype=np.uint32),
        np.arange(2, 9, 2),
        [1] * 4,
        [Sampling()],
        [0] * 4,
        [],
        [],
    )
    here, there = channels()
    here.send_prompts(whole.slice(1, 3))
    _, got = there.receive()
    here.close()
    there.close()

    assert isinstance(got, Prompts)
    assert [[2, 3], [4, 5]] == [ids.tolist() for ids in got.row_ids()]


def test_more_than_a_socket_holds_goes_through() -> None:
    here, there = channels()
    choice = Choice(0, "b", token_ids=[1], logprobs=[{"token": "b", "logprob": None}])
    outcomes = [Outcome(i, "ok", text="x" * 1000, choices=[choice]) for i in range(20_000)]
    sender = threading.Thread(target=here.send_outcomes, args=(pack(outcomes),))
    sender.start()
    _, got = there.receive()
    sender.join()
    here.close()
    there.close()

    assert isinstance(got, Outcomes)
    assert outcomes == got.unpack()


def test_half_a_message_is_none() -> None:
    ours, theirs = pair()
    ours.sendall(b"\x10\0\0\0\0\0\0\0\0\0\0\0half")
    ours.close()
    there = Channel(theirs)

    with pytest.raises(ChannelClosed):
        there.receive()
    there.close()


def test_sending_to_nobody_is_told() -> None:
    here, there = channels()
    there.close()

    with pytest.raises(ChannelClosed):
        here.send(End())
    here.close()


def test_closing_wakes_who_waits() -> None:
    here, there = channels()
    woken: list[bool] = []

    def wait() -> None:
        with pytest.raises(ChannelClosed):
            here.receive()
        woken.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    here.close()
    waiter.join(10)
    there.close()

    assert [True] == woken
