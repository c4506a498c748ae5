"""An endpoint that lets nobody in: the run stops at once with a sentence, and goes on once that is mended."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cases.command import OK, STOPPED, check_whole, job, rowmill
from tests.cases.endpoint import Serve


def test_a_run_stops_at_a_refused_key_and_goes_on_with_another(
    tmp_path: Path, serve: Serve
) -> None:
    refuse = {"hit_to": 3, "hit_from": 3, "action": {"type": "status", "code": 401}}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([refuse]))
    endpoint, out = serve(plan=plan), tmp_path / "out"
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"id": {i}, "prompt": "row {i}"}}\n' for i in range(50)))
    arguments = job(source, out, endpoint=endpoint, sets={"engine.seats": 1})
    arguments.remove("engine.seats=16")
    arguments.remove("--set")

    stopped = rowmill("run", arguments)
    again = rowmill("run", arguments)

    assert stopped.code == STOPPED, stopped.stderr
    assert "the endpoint lets nobody in: HTTP 401: scripted fault" in stopped.told["stopped"]
    assert (2, 0, 48) == tuple(stopped.told[name] for name in ("ok", "error", "not_done"))
    assert again.code == OK
    check_whole(again, out, 50)
    assert 51 == endpoint.hits
