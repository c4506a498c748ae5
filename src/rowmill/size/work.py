"""Tokens -> work: what a row costs beside another one, and a step beside its rows, in tokens of a prompt.

Promises: one measure for those who share rows out, so that plan and engines agree on what is even.
Knows nothing of: models, GPUs.
Source: prompts are computed many tokens at once, answers a token a step; with vLLM 0.25.1 on an H200 a token of an
answer took two to four times one of a prompt, from the 0.5B to the 7B shape.
"""

DECODE_WEIGHT = 3.0
"""What a token of an answer costs, in tokens of a prompt."""
STEP_WEIGHT = 600.0
"""What a step costs, whatever is in it. Fitted to how long each of three and of five engines of vLLM 0.25.1 on one H200 was
at work on 4,000 mixed rows of the 0.5B shape: 3.8 ms a step and 15 us a token of an answer, 260 of which make a step; the
same two numbers foretell 20.7 s for one engine, which took 20.5. With the 7B shape and fp8 it was 3.3 ms and 24 us, 140."""
