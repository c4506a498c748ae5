"""A file of chat lines -> the file that `vllm run-batch` writes, with its engine open before.

Promises: run-batch's own `main` does the work, of the version installed; all that is replaced is the opening of the
engine and of its endpoints, which is done once, and told apart.
Knows nothing of: rowmill's own engines.
Memory: what run-batch needs: all requests and answers of a file before 0.33.
Source: vllm/entrypoints/openai/run_batch.py of 0.25.1, vllm/entrypoints/launchers/run_batch.py of 0.32.0 and 0.33.0.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rowmill import errors
from rowmill.bench.answers import batch_answers, checked, lines_of
from rowmill.bench.records import Run, Spec, Task, Work
from rowmill.bench.vllm_llm import taken

PLACES = (
    ("vllm.entrypoints.launchers.run_batch", "vllm.entrypoints.launchers.api_server.entry"),
    ("vllm.entrypoints.openai.run_batch", "vllm.entrypoints.openai.api_server"),
)
"""(module of run-batch, module that opens its engine), newest first."""
AS_IT_IS = "{{ messages[0]['content'] }}"
"""A chat template that adds nothing: the same tokens for all."""


class Batch:
    """`vllm run-batch`, open."""

    def __init__(self, spec: Spec) -> None:
        import vllm
        from vllm.usage.usage_lib import UsageContext

        self._program, self._opening = _modules()
        self._loop = asyncio.new_event_loop()
        self._model = spec.model
        self._args = self._arguments(spec)
        self._open = self._opening.build_async_engine_client(
            self._args, usage_context=UsageContext.OPENAI_BATCH_RUNNER
        )
        self._client = self._loop.run_until_complete(self._open.__aenter__())
        endpoints = self._loop.run_until_complete(
            self._program.build_endpoint_registry(engine_client=self._client, args=self._args)
        )
        _replace(self._program, self._opening, self._client, endpoints)
        self.about = {
            **taken(self._client.vllm_config),
            "vllm": vllm.__version__,
            "how": f"`{self._program.__name__}.main` in process",
        }

    def run(self, task: Task) -> Run:
        """See `contenders.Contender`."""
        assert task.work is not None
        source, out = Path(f"{task.out}.in.jsonl"), Path(f"{task.out}.jsonl")
        self._write_lines(task.work, source)
        self._args.input_file, self._args.output_file = str(source), str(out)
        self._loop.run_until_complete(self._client.reset_prefix_cache())
        began = time.perf_counter()
        self._loop.run_until_complete(self._program.main(self._args))
        seconds = time.perf_counter() - began
        return checked(task.work, batch_answers(out), seconds)

    def close(self) -> None:
        """See `contenders.Contender`."""
        self._loop.run_until_complete(self._open.__aexit__(None, None, None))

    def _write_lines(self, work: Work, into: Path) -> None:
        """The same prompts as its kind of lines; it has no endpoint for plain completions."""
        with into.open("w", encoding="utf-8") as file:
            for row in lines_of(Path(work.path)):
                body = {
                    "model": self._model,
                    "messages": [{"role": "user", "content": row["prompt"]}],
                    "max_tokens": row["max_tokens"],
                    "ignore_eos": True,
                    "temperature": 0,
                }
                line = {
                    "custom_id": row["id"],
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": body,
                }
                file.write(json.dumps(line) + "\n")

    def _arguments(self, spec: Spec) -> Any:
        """Its own command line, parsed by itself.

        Raises:
            ConfigError: it has no such argument.
        """
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        words = ["-i", "-", "-o", "-", "--model", spec.model, "--tokenizer", spec.tokenizer]
        words += ["--chat-template", AS_IT_IS, "--enable-prompt-tokens-details"]
        args = self._program.make_arg_parser(FlexibleArgumentParser()).parse_args(words)
        for name, value in spec.settings.items():
            if not hasattr(args, name):
                reason = f"`vllm run-batch` has no argument for `{name}`; leave it out"
                raise errors.ConfigError(reason=reason)
            setattr(args, name, value)
        return args


def _modules() -> tuple[Any, Any]:
    """Raises: ConfigError: the installed vLLM has run-batch elsewhere, or none, or a library is missing."""
    missing = ""
    for program, opening in PLACES:
        try:
            found = importlib.import_module(program), importlib.import_module(opening)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            continue
        if hasattr(found[0], "make_arg_parser"):
            return found
    reason = f"`vllm run-batch` cannot be opened here (no module `{missing}`); leave contender `run_batch` out"
    raise errors.ConfigError(reason=reason)


def _replace(program: Any, opening: Any, client: Any, endpoints: Any) -> None:
    """Let `main` find the engine and the endpoints that are open."""

    @contextlib.asynccontextmanager
    async def opened(*_: Any, **__: Any) -> AsyncIterator[Any]:
        yield client

    async def built(*_: Any, **__: Any) -> Any:
        return endpoints

    opening.build_async_engine_client = opened
    program.build_endpoint_registry = built
