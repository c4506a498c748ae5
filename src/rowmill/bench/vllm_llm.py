"""A file of rows -> a file of answers by `vllm.LLM`, as people write it: in file order, sorted, or with ids made before.

Promises: what is timed is file to file, loading of the model left out; the prefix cache is empty when a run begins.
Knows nothing of: rowmill's own engines.
Memory: all rows and answers of a file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rowmill import errors
from rowmill.bench.answers import checked, lines_of, plain_answers
from rowmill.bench.records import Run, Spec, Task


class Llm:
    """An open `vllm.LLM` and three ways to use it."""

    def __init__(self, spec: Spec) -> None:
        try:
            import vllm
        except ImportError as error:
            raise errors.MissingExtra(what="`vllm`", extra="vllm") from error
        from tokenizers import Tokenizer

        self._params = vllm.SamplingParams
        settings = {"tokenizer": spec.tokenizer, **spec.settings}
        self._llm: Any = vllm.LLM(model=spec.model, **settings)
        self._tokenizer = Tokenizer.from_file(str(Path(spec.tokenizer) / "tokenizer.json"))
        self.about = {
            **taken(self._llm.llm_engine.vllm_config),
            "vllm": vllm.__version__,
        }

    def run(self, task: Task) -> Run:
        """See `contenders.Contender`."""
        assert task.work is not None
        if not self._llm.reset_prefix_cache():
            reason = "vLLM did not empty its prefix cache between two runs"
            raise errors.EngineDied(reason=reason)
        source, out = Path(task.work.path), Path(f"{task.out}.jsonl")
        began = time.perf_counter()
        rows = list(lines_of(source))
        outputs = getattr(self, f"_{task.name}")(rows)
        write(out, rows, outputs)
        seconds = time.perf_counter() - began
        return checked(task.work, plain_answers(out), seconds)

    def close(self) -> None:
        """See `contenders.Contender`."""
        self._llm.llm_engine.engine_core.shutdown()

    def _generate(self, rows: list[dict[str, Any]]) -> Sequence[Any]:
        return self._asked([row["prompt"] for row in rows], rows)

    def _sorted(self, rows: list[dict[str, Any]]) -> Sequence[Any]:
        order = sorted(range(len(rows)), key=lambda i: str(rows[i]["prompt"]))
        return self._in_order(order, [rows[i]["prompt"] for i in order], rows)

    def _five_line(self, rows: list[dict[str, Any]]) -> Sequence[Any]:
        found = self._tokenizer.encode_batch([row["prompt"] for row in rows])
        ids = [one.ids for one in found]
        order = sorted(range(len(rows)), key=ids.__getitem__)
        return self._in_order(order, [{"prompt_token_ids": ids[i]} for i in order], rows)

    def _in_order(
        self, order: list[int], prompts: list[Any], rows: list[dict[str, Any]]
    ) -> Sequence[Any]:
        """Ask in another order, and put the answers back."""
        outputs: list[Any] = [None] * len(rows)
        answers = self._asked(prompts, [rows[i] for i in order])
        for place, output in zip(order, answers, strict=True):
            outputs[place] = output
        return outputs

    def _asked(self, prompts: list[Any], rows: list[dict[str, Any]]) -> Sequence[Any]:
        params = [
            self._params(temperature=0, max_tokens=row["max_tokens"], ignore_eos=True)
            for row in rows
        ]
        found: Sequence[Any] = self._llm.generate(prompts, params, use_tqdm=False)
        return found


def write(out: Path, rows: list[dict[str, Any]], outputs: Sequence[Any]) -> None:
    """One line an answer."""
    with out.open("w", encoding="utf-8") as file:
        for row, output in zip(rows, outputs, strict=True):
            answer = output.outputs[0]
            line = {
                "id": row["id"],
                "text": answer.text,
                "finish_reason": answer.finish_reason,
                "prompt_tokens": len(output.prompt_token_ids),
                "output_tokens": len(answer.token_ids),
                "cached_tokens": output.num_cached_tokens or 0,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def taken(config: Any) -> dict[str, Any]:
    """Settings as vLLM took them."""
    cache, scheduler = config.cache_config, config.scheduler_config
    return {
        "seats": scheduler.max_num_seqs,
        "step_tokens": scheduler.max_num_batched_tokens,
        "kv_tokens": (cache.num_gpu_blocks or 0) * (cache.block_size or 0),
        "dtype": str(config.model_config.dtype),
        "quantization": config.model_config.quantization,
    }
