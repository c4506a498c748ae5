"""A retry with changed settings: the last outcome wins, the first stays and is told by `trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import OK, SOME_FAILED, check_refused, job, results, rowmill, run


@pytest.mark.slow
def test_changed_settings_mend_one_kind_and_trace_tells_what_was_before(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    rows = [{"id": "long", "prompt": "x" * 90}, {"id": "ok", "prompt": "y"}]
    rows.append({"id": "bad", "prompt": "poison"})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fault = '[{contains = "poison", action = "error"}]'
    sets = {"engine.tokenizer": "bytes", "engine.max_model_len": 64, "engine.faults": fault}
    first = rowmill(
        "run", job(source, out, "--engine", "echo", "--prompt", "{prompt}", sets=sets)
    )
    before = {row["id"]: row["rowmill_error_kind"] for row in results(out)}
    longer = ["--kind", "too_long", "--set", "engine.max_model_len=512"]
    second = rowmill("retry", [str(out), *longer])
    after = {row["id"]: row["rowmill_error_kind"] for row in results(out)}
    third = rowmill("retry", [str(out), "--kind", "refused", "--set", "engine.faults=[]"])
    told = rowmill("trace", [str(out), "long"], as_json=False).stdout
    last = rowmill("trace", [str(out), "bad"]).told

    assert (SOME_FAILED, SOME_FAILED, OK) == (first.code, second.code, third.code), third.stderr
    assert {"long": "too_long", "ok": None, "bad": "refused"} == before
    assert {"long": None, "ok": None, "bad": "refused"} == after
    assert {"ok"} == {row["rowmill_status"] for row in results(out)}
    assert "before    the first asking: error too_long: 90 prompt tokens, limit 64" in told
    assert "asked again with `engine.max_model_len` = 512" in told
    (earlier,) = last["earlier"]
    assert (1, "refused", {"engine.faults": []}) == (
        earlier["retry"],
        earlier["outcome"]["error_kind"],
        earlier["settings"],
    )
    assert ["plan/retry-001.json", "plan/retry-002.json"] == sorted(
        f"plan/{path.name}" for path in (out / "plan").glob("retry-*")
    )


def test_a_retry_takes_ids_from_where_the_run_does(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text(
        '{"id": "a", "nr": 1, "prompt": "x"}\n{"id": "b", "nr": 2, "prompt": 5}\n'
    )
    assert run(source, out, sets={"validate.id_column": "nr"}).code == SOME_FAILED

    for column, told in (("id", "`id`"), ("", "unset")):
        other = rowmill("retry", [str(out), "--set", f"validate.id_column={column}"])
        assert f"`validate.id_column` is {told}, and `nr` in the run" in check_refused(other)
    assert list((out / "plan").glob("retry-*")) == []
    same = rowmill("retry", [str(out), "--set", "validate.id_column=nr"])

    assert same.code == SOME_FAILED, same.stderr
    assert [row["nr"] for row in results(out)] == [1, 2]
