"""`vllm.LLM.generate` by itself: token ids of prompts in, token ids and texts of greedy answers out.

Run: `python -m tests.engines.vllm_alone MODEL MAX_TOKENS IDS.json ANSWERS.json`. What the adapter's answers are compared with.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from vllm import LLM, SamplingParams


def main(model: str, max_tokens: int, ids: Path, answers: Path) -> None:
    prompts = json.loads(ids.read_bytes())
    llm = LLM(
        model=model, dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=32
    )
    outputs = llm.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        SamplingParams(temperature=0, max_tokens=max_tokens),
        use_tqdm=False,
    )
    found = [
        {
            "ids": list(o.outputs[0].token_ids),
            "text": o.outputs[0].text,
            "finish_reason": o.outputs[0].finish_reason,
        }
        for o in outputs
    ]
    answers.write_text(json.dumps(found))
    # vLLM's processes need no farewell: whoever started this ends its group.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
