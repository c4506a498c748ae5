"""The port with vLLM's own front end and a core that is scripted: a vLLM of another version is tried in seconds.

With `PYTHONPATH=FOLDER` of an unpacked wheel and `VLLM_TARGET_DEVICE=cpu` no library of that version needs to load.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.vllm_ask import Row
from rowmill.engines.vllm_graphs import graphs_for_seats
from rowmill.engines.vllm_options import checked, engine_arguments
from rowmill.engines.vllm_port import Port, has_failed
from rowmill.rows import Sampling

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]
pytest.importorskip("torch")
pytest.importorskip("vllm")


class Core:
    """Stands for vLLM's process: ends every request at its first step."""

    def __init__(self, reason: str) -> None:
        self.requests: list[Any] = []
        self._reason = reason

    def add_request(self, request: Any) -> None:
        from vllm.v1.serial_utils import MsgpackEncoder

        MsgpackEncoder().encode(request)  # what cannot be sent is found here
        self.requests.append(request)

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def abort_requests(self, names: list[str]) -> None:
        assert not names

    def get_output(self) -> Any:
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
        from vllm.v1.metrics.stats import PrefillStats, SchedulerStats

        outputs = [
            EngineCoreOutput(
                request_id=request.request_id,
                new_token_ids=[300, 301, 302],
                finish_reason=FinishReason[self._reason],
                prefill_stats=PrefillStats(num_cached_tokens=2),
            )
            for request in self.requests
        ]
        return EngineCoreOutputs(
            outputs=outputs, scheduler_stats=SchedulerStats(num_running_reqs=3)
        )


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    from tests.engines.hf_folders import random_folder

    folder: Path = random_folder(tmp_path_factory.mktemp("models") / "random")
    engine = EngineConfig.model_validate(
        {"name": "vllm", "model": str(folder), "enforce_eager": True, "dtype": "float32"}
    )
    arguments = engine_arguments(engine, checked(engine))
    return EngineArgs(**arguments).create_engine_config(UsageContext.LLM_CLASS)


def port_of(config: Any, *, is_direct: bool, reason: str = "LENGTH") -> tuple[Port, Core]:
    """A port on vLLM's engine without its processes."""
    from vllm.renderers import renderer_from_config
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.engine.output_processor import OutputProcessor

    engine, core = LLMEngine.__new__(LLMEngine), Core(reason)
    engine.vllm_config, engine.model_config = config, config.model_config
    engine.renderer = renderer_from_config(config)
    engine.input_processor = InputProcessor(config, engine.renderer)
    engine.output_processor = OutputProcessor(engine.renderer.tokenizer, log_stats=True)
    engine.engine_core, engine.log_stats, engine.logger_manager = core, True, None
    engine.dp_group, engine.should_execute_dummy_batch = None, False
    engine.external_launcher_dp = False
    return Port(engine, loras={}, is_direct=is_direct), core


def row(key: int, sampling: Sampling, *, room: int = 9) -> Row:
    return Row(key, np.array([5, 6, 7], np.uint32), room, room, sampling, 0.0)


GOOD = [
    Sampling(temperature=0),
    Sampling(stop=("zz",)),
    Sampling(n=2, temperature=1),
    Sampling(seed_per_row=True),
    Sampling(schema='{"type": "object"}'),
    Sampling(choices=("a", "b")),
    Sampling(min_p=0.1, top_k=5, top_p=0.9, repetition_penalty=1.1, ignore_eos=True),
]


@pytest.mark.parametrize("is_direct", [True, False])
def test_every_row_comes_back_once(config: Any, is_direct: bool) -> None:
    port, _ = port_of(config, is_direct=is_direct)
    for key, sampling in enumerate(GOOD):
        port.add(row(key, sampling))
    ended = {one.row.key: one for one in port.step()}

    assert set(range(len(GOOD))) == set(ended)
    assert port.is_idle
    assert {2} == {one.cached_tokens for one in ended.values()}
    assert [1, 1, 2, 1, 1, 1, 1] == [len(ended[key].samples) for key in sorted(ended)]
    for one in ended.values():
        for sample in one.samples:
            assert ([300, 301, 302], "length") == (sample.ids, sample.finish_reason)
    assert ended[1].samples[0].text
    assert ended[0].samples[0].text is None


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(schema='{"type": "wrong"}'),
        Sampling(regex="(["),
        Sampling(temperature=-9),
        Sampling(lora="none"),
        Sampling(n=2, temperature=1, schema="{"),
    ],
)
def test_core_never_sees_a_row_that_is_refused(
    config: Any, sampling: Sampling, is_direct: bool
) -> None:
    port, core = port_of(config, is_direct=is_direct)

    with pytest.raises(errors.RowError):
        port.add(row(1, sampling))
    assert [] == core.requests
    assert port.is_idle


def test_copies_of_a_request_differ_where_rows_do(config: Any) -> None:
    port, core = port_of(config, is_direct=True)
    seeded = Sampling(temperature=1, seed_per_row=True)
    for key, room in ((1, 9), (2, 9), (3, 4)):
        port.add(row(key, seeded, room=room))
    port.add(row(4, Sampling(temperature=1)))
    found = [request.sampling_params for request in core.requests]

    assert [9, 9, 4, 9] == [theirs.max_tokens for theirs in found]
    assert 3 == len({theirs.seed for theirs in found[:3]})
    assert found[3].seed is None
    assert 4 == len({request.request_id for request in core.requests})
    # The model's own end of text came with the template.
    assert {found[0].eos_token_id} == {theirs.eos_token_id for theirs in found} != {None}


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("reason", ["ERROR", "ABORT"])
def test_row_that_vllm_gave_up_is_seen(config: Any, reason: str, is_direct: bool) -> None:
    port, _ = port_of(config, is_direct=is_direct, reason=reason)
    port.add(row(1, Sampling(temperature=0)))

    assert [True] == [has_failed(one) for one in port.step()]


def test_scheduler_s_counts_are_taken_over(config: Any) -> None:
    port, _ = port_of(config, is_direct=True)
    port.add(row(1, Sampling(temperature=0)))
    ended = port.step()

    # The scheduler counts 3 after the step; who ended with it was in it, too.
    assert 3 + len(ended) == port.counters.running
    assert len(ended) > 0


def test_graphs_for_all_seats_are_what_vllm_makes_of_them(config: Any) -> None:
    from vllm.config import CUDAGraphMode

    # A configuration as on a GPU: one for a CPU records nothing.
    gpu = copy.deepcopy(config)
    gpu.model_config.enforce_eager = False
    gpu.compilation_config.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    gpu.scheduler_config.max_num_seqs, gpu.scheduler_config.max_num_batched_tokens = 1024, 16384

    def recorded(sizes: list[int] | None) -> list[int]:
        gpu.compilation_config.cudagraph_capture_sizes = sizes
        gpu.compilation_config.max_cudagraph_capture_size = None
        gpu._set_cudagraph_sizes()
        return list(gpu.compilation_config.cudagraph_capture_sizes)

    own = recorded(None)
    assert 512 == own[-1], "vLLM records more by itself now: is graphs_for_seats still of use?"

    wider = graphs_for_seats({}, gpu)["cudagraph_capture_sizes"]

    assert wider == recorded(wider)
    assert 1024 == wider[-1]
    assert own == wider[: len(own)]
    assert {} == graphs_for_seats({}, config)
