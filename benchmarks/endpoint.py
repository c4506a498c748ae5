"""A scripted OpenAI-compatible endpoint that costs little: the other side of benchmarks/over_http.py.

Answers are a function of the request. Faults are drawn for each request from a seeded generator, whatever the load; beside
them the endpoint has a limit of its own: it works on so many requests at once, each taking so long. Others wait their
turn, or get 429 (`--over refuse`).

    python benchmarks/endpoint.py --slots 64 --service-s 0.1 --rate-429 0.1 --rate-500 0.05 --rate-cut 0.01 --rate-hang 0.01

The first line of stdout is its root. GET /stats tells what it saw; POST /reset forgets it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import deque
from hashlib import sha256
from typing import Any

MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model"}]}'


class Script:
    """What the endpoint does, and what it saw."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.forget()

    def forget(self) -> None:
        """Begin anew, with the same draws."""
        self.draw = random.Random(self.options.seed)
        self.waiting: deque[tuple[Connection, bytes]] = deque()
        self.requests = self.in_flight = self.most_in_flight = self.working = 0
        self.told: dict[str, int] = {}
        self.first_at = self.last_ok_at = 0.0

    def fault(self) -> str:
        """What goes wrong with the next request; empty for nothing."""
        options, at = self.options, self.draw.random()
        for name in ("429", "500", "cut", "hang"):
            share = getattr(options, f"rate_{name}")
            if at < share:
                return name
            at -= share
        return ""

    def count(self, what: str) -> None:
        """Count an end of a request."""
        self.told[what] = self.told.get(what, 0) + 1
        if what == "200":
            self.last_ok_at = time.monotonic()

    def stats(self) -> dict[str, Any]:
        """What it saw so far."""
        return {
            "requests": self.requests,
            "most_in_flight": self.most_in_flight,
            "told": self.told,
            "seconds": round(self.last_ok_at - self.first_at, 3),
        }


class Connection(asyncio.Protocol):
    """One connection, kept alive; one request at a time."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._held = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end]
            at = head.lower().find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._held) < end + 4 + length:
                return
            body = self._held[end + 4 : end + 4 + length]
            self._held = self._held[end + 4 + length :]
            self._serve(head, body)

    def _serve(self, head: bytes, body: bytes) -> None:
        script = self._script
        if head.startswith(b"GET /stats"):
            self._send(200, json.dumps(script.stats()).encode())
        elif head.startswith(b"POST /reset"):
            script.forget()
            self._send(200, b"{}")
        elif head.startswith(b"GET "):
            self._send(200, MODELS) if b"/models " in head else self._send(404, b"{}")
        else:
            self._ask(body)

    def _ask(self, body: bytes) -> None:
        script = self._script
        script.first_at = script.first_at or time.monotonic()
        script.requests += 1
        script.in_flight += 1
        script.most_in_flight = max(script.most_in_flight, script.in_flight)
        fault = script.fault()
        if fault == "hang":
            script.count("hang")
            script.in_flight -= 1
        elif fault:
            self._end(fault, body)
        elif not script.options.service_s:
            self._end("200", body)
        elif script.working < script.options.slots:
            self.work(body)
        elif script.options.over == "refuse":
            self._end("limit", body)
        else:
            script.waiting.append((self, body))

    def work(self, body: bytes) -> None:
        script = self._script
        script.working += 1
        asyncio.get_running_loop().call_later(script.options.service_s, self._worked, body)

    def _worked(self, body: bytes) -> None:
        script = self._script
        script.working -= 1
        self._end("200", body)
        while script.waiting and script.working < script.options.slots:
            connection, next_body = script.waiting.popleft()
            if connection.is_gone():
                script.in_flight -= 1
            else:
                connection.work(next_body)

    def is_gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return bool(self._transport.is_closing())

    def _end(self, what: str, body: bytes) -> None:
        script = self._script
        script.in_flight -= 1
        script.count(what)
        if what in ("429", "limit"):
            self._send(429, b'{"error":{"message":"slow down","code":429}}')
        elif what == "500":
            self._send(500, b'{"error":{"message":"scripted fault","code":500}}')
        else:
            self._send(200, answer(body), is_cut=what == "cut")

    def _send(self, status: int, body: bytes, *, is_cut: bool = False) -> None:
        if self._transport.is_closing():
            return
        head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        text = head % (status, len(body)) + body
        self._transport.write(text[: -len(body) // 2] if is_cut else text)
        if is_cut:
            self._transport.close()


def answer(body: bytes) -> bytes:
    """An answer that belongs to this request alone."""
    asked = json.loads(body)
    prompt = asked["prompt"] if "prompt" in asked else asked["messages"][-1]["content"]
    text = "A:" + sha256(prompt.encode()).hexdigest()[:12]
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": 14,
        "total_tokens": len(prompt) + 14,
    }
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    is_chat = "messages" in asked
    choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    kind = "chat.completion" if is_chat else "text_completion"
    found = {
        "id": "r",
        "object": kind,
        "created": 0,
        "model": "tiny",
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(found).encode()


async def serve(options: argparse.Namespace) -> None:
    script = Script(options)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(script), "127.0.0.1", options.port, backlog=4096
    )
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}/v1", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", type=int, default=64, help="requests worked on at once")
    parser.add_argument(
        "--over", choices=["wait", "refuse"], default="wait", help="what becomes of others"
    )
    parser.add_argument(
        "--service-s", type=float, default=0.0, help="seconds that each takes; 0: no limit"
    )
    for name in ("429", "500", "cut", "hang"):
        parser.add_argument(f"--rate-{name}", type=float, default=0.0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
