"""Other clients over the file and the endpoint of benchmarks/over_http.py: `python benchmarks/http_others.py NAME OPTIONS`.

`openai`: openai-python's AsyncOpenAI, a task a row behind a semaphore. `ray`: Ray Data LLM's HttpRequestProcessor.
Runs in an environment that has them; prints one JSON object: rows answered, seconds from the first request on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any


def rows_of(path: str) -> list[dict[str, Any]]:
    return [json.loads(line)["body"] for line in Path(path).read_text().splitlines()]


async def with_openai(options: argparse.Namespace) -> list[str | None]:
    import openai

    client = openai.AsyncOpenAI(
        base_url=options.url,
        api_key="none",
        timeout=options.timeout_s,
        max_retries=options.attempts - 1,
    )
    seats = asyncio.Semaphore(options.seats)
    answers: list[str | None] = []

    async def ask(body: dict[str, Any]) -> None:
        async with seats:
            try:
                answer = await client.completions.create(**body)
                answers.append(answer.choices[0].text)
            except openai.OpenAIError:
                answers.append(None)

    async with asyncio.TaskGroup() as tasks:
        for body in rows_of(options.input):
            tasks.create_task(ask(body))
    return answers


def with_ray(options: argparse.Namespace) -> list[str | None]:
    import ray
    from ray.data.llm import HttpRequestProcessorConfig, build_processor

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    config = HttpRequestProcessorConfig(
        url=f"{options.url}/completions",
        max_retries=options.attempts - 1,
        base_retry_wait_time_in_s=0.5,
        batch_size=options.seats,
        concurrency=1,
    )
    processor = build_processor(
        config,
        preprocess=lambda row: {
            "payload": {name: row["body"][name] for name in ("model", "prompt", "max_tokens")}
        },
        postprocess=lambda row: {"text": row["http_response"]["choices"][0]["text"]},
    )
    return [row["text"] for row in processor(ray.data.read_json(options.input)).take_all()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["openai", "ray"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--out", default=os.devnull)
    parser.add_argument("--seats", type=int, default=128)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--timeout-s", type=float, default=1.0)
    options = parser.parse_args()
    began = time.monotonic()
    answers = (
        asyncio.run(with_openai(options)) if options.name == "openai" else with_ray(options)
    )
    Path(options.out).write_text("".join(json.dumps({"text": text}) + "\n" for text in answers))
    rows = sum(text is not None for text in answers)
    print(json.dumps({"answered": rows, "seconds": round(time.monotonic() - began, 2)}))


if __name__ == "__main__":
    main()
