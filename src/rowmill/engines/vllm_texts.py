"""Prompts -> answers that are texts, by vLLM.

Promises: texts are decoded many at once beside the steps; a row that vLLM refuses fails alone, one that it gives up is
asked once more.
Knows nothing of: vLLM's objects (vllm_port.py), what a row becomes for it (vllm_ask.py).
Memory: the rows given.
"""

from __future__ import annotations

import time
from pathlib import Path

from rowmill import errors
from rowmill.engines.prompt import check_prompt, room_for
from rowmill.engines.vllm_ask import Ended, Row, answered, failed, text_ids
from rowmill.engines.vllm_loop import Loop
from rowmill.engines.vllm_port import Port, has_failed
from rowmill.engines.vllm_reader import Reader
from rowmill.rows import Limits, Outcome, Prompts
from rowmill.tokens.answers import AnswerTexts

_TRIES = 2


class Vllm(Loop[Ended]):
    """An open vLLM whose answers are texts."""

    _port: Port

    def __init__(
        self,
        port: Port,
        *,
        limits: Limits,
        vocabulary: int,
        texts: AnswerTexts,
        reader: Reader | None = None,
        sockets: Path | None = None,
    ) -> None:
        super().__init__(port, limits, sockets=sockets)
        self._reader = reader
        self._vocabulary = vocabulary
        self._texts = texts

    def _add_all(self, prompts: Prompts) -> None:
        began, limit = time.monotonic(), self.limits.max_model_tokens
        refused: list[Ended | Outcome] = []
        for i, ids in enumerate(prompts.row_ids()):
            sampling = prompts.samplings[prompts.sampling_of[i]]
            asked = prompts.max_tokens[i]
            room = room_for(sampling, max_tokens=asked, prompt_tokens=len(ids), limit=limit)
            media = prompts.media.get(prompts.keys[i], ())
            row = Row(prompts.keys[i], ids, asked, room, sampling, began, media=media)
            try:
                check_prompt(ids, asked=asked, limit=limit, vocabulary=self._vocabulary)
                self._port.add(row)
            except errors.RowError as error:
                refused.append(failed(row, error))
        if refused:
            self._out.put(refused)

    def _put(self, ended: list[Ended]) -> None:
        """Let rows go that ended; one that vLLM gave up is asked once more."""
        going: list[Ended | Outcome] = []
        for one in ended:
            if not has_failed(one):
                going.append(one)
            elif one.row.attempts < _TRIES:
                one.row.attempts += 1
                self._port.add(one.row)  # it was taken before, so it is now
            else:
                reason = f"vLLM ended the row without an answer, {_TRIES} times; see its log"
                going.append(failed(one.row, errors.GaveUp(reason=reason)))
        if going:
            self._out.put(going)

    def _outcomes(self, some: list[Ended | Outcome]) -> list[Outcome]:
        """Decode all at once; other threads run on meanwhile."""
        ended = [one for one in some if isinstance(one, Ended)]
        places = [
            (i, j)
            for i, one in enumerate(ended)
            for j, sample in enumerate(one.samples)
            if sample.text is None
        ]
        texts = self._texts.texts([text_ids(ended[i].samples[j]) for i, j in places])
        text_of: list[dict[int, str]] = [{} for _ in ended]
        for (i, j), text in zip(places, texts, strict=True):
            text_of[i][j] = text
        outcomes = [one for one in some if isinstance(one, Outcome)]
        return outcomes + [self._read(*pair) for pair in zip(ended, text_of, strict=True)]

    def _read(self, ended: Ended, texts: dict[int, str]) -> Outcome:
        outcome = answered(ended, texts)
        if self._reader is None:
            return outcome
        samples = [text_ids(sample) for sample in ended.samples]
        samples += samples[:1] * (len(outcome.choices) - len(samples))  # of equal greedy ones
        return self._reader.read(outcome, samples, ended.row.sampling.tools)
