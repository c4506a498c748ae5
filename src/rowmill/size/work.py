"""Tokens -> work: what a row costs beside another one, in tokens of a prompt.

Promises: one measure for those who share rows out, so that plan and engines agree on what is even.
Knows nothing of: models, GPUs.
Source: prompts are computed many tokens at once, answers a token a step; with vLLM 0.25.1 on an H200 a token of an
answer took two to four times one of a prompt, from the 0.5B to the 7B shape.
"""

DECODE_WEIGHT = 3.0
"""What a token of an answer costs, in tokens of a prompt."""
