"""The http adapter against the scripted endpoint: what is sent, tried again, refused and read."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import http
from rowmill.rows import Outcome, Prompts, Sampling
from tests.engines.endpoint import FAKE, FakeEndpoint, fake_endpoint, wire_prompts
from tests.engines.feeds import answers_of


def fake_answer(prompt: str) -> str:
    return "A:" + hashlib.sha256(prompt.encode()).hexdigest()[:12]


def ask(endpoint: FakeEndpoint, prompts: Prompts, **options: Any) -> list[Outcome]:
    settings = {"back_off_s": 0.05, "model": "tiny", **options}
    return answers_of(
        http.open(EngineConfig(name="http", url=endpoint.url, **settings)), prompts
    )


def after(action: dict[str, Any], *, contains: str, times: int = 0) -> dict[str, Any]:
    rule: dict[str, Any] = {"contains": contains, "action": action}
    return {**rule, "times": times} if times else rule


def test_each_row_gets_its_own_answer_and_counts(tmp_path: Path) -> None:
    texts = [f"row {i}" for i in range(200)]
    with fake_endpoint(tmp_path) as endpoint:
        outcomes = ask(endpoint, wire_prompts(texts), seats=16)

        assert endpoint.stats()["max_inflight"] <= 16
    assert [fake_answer(text) for text in texts] == [o.text for o in outcomes]
    assert {1} == {o.attempts for o in outcomes}
    assert (1 + len("row 7"), 14) == (outcomes[7].prompt_tokens, outcomes[7].output_tokens)


def test_chat_rows_are_sent_as_they_stand(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "caf\u00e9 \U0001f600"}]
    prompts = wire_prompts([messages], field="messages", max_tokens=20)
    prompts.wires = [b'[ {"role" : "user", "content": "caf\\u00e9 \xf0\x9f\x98\x80"} ]']
    with fake_endpoint(tmp_path) as endpoint:
        outcomes = ask(endpoint, prompts)
        hit = endpoint.hits()[0]

    assert fake_answer("caf\u00e9 \U0001f600") == outcomes[0].text
    assert hit["body"].startswith('{"messages":[ {"role" : "user"')
    assert "/v1/chat/completions" == hit["path"]
    assert 20 == json.loads(hit["body"])["max_tokens"]


def test_limit_left_to_the_endpoint_is_not_sent(tmp_path: Path) -> None:
    with fake_endpoint(tmp_path) as endpoint:
        ask(endpoint, wire_prompts(["a"]))

        assert {"prompt", "model"} == set(json.loads(endpoint.hits()[0]["body"]))


def test_extra_fields_never_replace_the_prompt(tmp_path: Path) -> None:
    extra = json.dumps({"prompt": "other", "messages": [], "stream": True, "user": "me"})
    sampling = Sampling(temperature=0.5, extra=extra, stop=("x",))
    with fake_endpoint(tmp_path) as endpoint:
        ask(endpoint, wire_prompts(["mine"], samplings=[sampling]))
        body = json.loads(endpoint.hits()[0]["body"])

    assert {
        "prompt": "mine",
        "model": "tiny",
        "temperature": 0.5,
        "stop": ["x"],
        "user": "me",
    } == body


def test_refused_row_is_told_in_the_servers_words_and_not_tried_again(tmp_path: Path) -> None:
    texts = ["short", "x" * 3011, "also short"]
    with fake_endpoint(tmp_path, "--max-model-len", "512") as endpoint:
        outcomes = ask(endpoint, wire_prompts(texts))

        assert 1 == endpoint.stats()["most_for_one_body"]
    assert ["ok", "error", "ok"] == [o.status for o in outcomes]
    assert "refused" == outcomes[1].error_kind
    assert "3012 tokens" in str(outcomes[1].error)
    assert "512" in str(outcomes[1].error)


def test_fewer_choices_than_asked_is_an_error_that_keeps_them_in_order(tmp_path: Path) -> None:
    late_first = [
        {"index": 2, "text": "late", "finish_reason": "stop"},
        {"index": 0, "text": "early", "finish_reason": "stop"},
    ]
    plan = [after({"type": "merge", "set": {"choices": late_first}}, contains="short")]
    samplings = [Sampling(n=3), Sampling(n=3), Sampling(n=8), Sampling()]
    texts = ["three", "short", "eight", "one"]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        three, short, eight, one = ask(endpoint, wire_prompts(texts, samplings=samplings))

    whole = fake_answer("three")
    assert [whole, f"{whole}#1", f"{whole}#2"] == [c.text for c in three.choices]
    assert 14 + 16 + 16 == three.output_tokens
    assert ("error", "short_answer") == (short.status, short.error_kind)
    assert "2 of 3" in str(short.error)
    assert [(0, "early"), (2, "late")] == [(c.index, c.text) for c in short.choices]
    assert 8 == len(eight.choices)
    assert [] == one.choices


def test_minus_infinity_keeps_the_answer(tmp_path: Path) -> None:
    plan = [after({"type": "raw_nan"}, contains="n1")]
    messages = [[{"role": "user", "content": "n1"}]]
    prompts = wire_prompts(messages, field="messages", samplings=[Sampling(logprobs=0)])
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        outcome = ask(endpoint, prompts)[0]

    assert ("ok", fake_answer("n1"), 1) == (outcome.status, outcome.text, outcome.attempts)
    assert [{"token": "A", "logprob": None, "top": {}}] == outcome.choices[0].logprobs


def test_half_a_surrogate_pair_keeps_the_answer(tmp_path: Path) -> None:
    body = '{"choices": [{"index": null, "text": "a\\ud83d", "finish_reason": "stop"}]}'
    plan = [after({"type": "ok_body", "raw": body}, contains="odd")]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        outcome = ask(endpoint, wire_prompts(["odd"]))[0]

    assert ("ok", "a\ufffd", 1) == (outcome.status, outcome.text, outcome.attempts)


@pytest.mark.parametrize(
    "action",
    [
        {"type": "ok_body", "body": {"choices": [{"text": 7}]}},
        {"type": "ok_body", "body": {"choices": ["text"]}},
        {"type": "ok_body", "body": {"choices": [{"text": "a", "token_ids": ["b"]}]}},
        {"type": "status", "code": 500},
        {"type": "status", "code": 429, "headers": {"Retry-After": "0"}},
        {"type": "status", "code": 503, "headers": {"Retry-After": "soon"}},
        {"type": "status", "code": 408},
        {"type": "close"},
        {"type": "reset_mid_body"},
        {"type": "ok_body", "raw": '{"choices": [{"te'},
        {"type": "ok_body", "body": {"error": {"message": "busy", "code": 503}}},
        {"type": "choices_null"},
        {"type": "drop", "keys": ["choices"]},
    ],
    ids=lambda action: "-".join(str(part) for part in action.values()),
)
def test_passing_failure_is_tried_again(tmp_path: Path, action: dict[str, Any]) -> None:
    plan = [after(action, contains="bad", times=2)]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        bad, good = ask(endpoint, wire_prompts(["bad", "good"]))

    assert (fake_answer("bad"), 3) == (bad.text, bad.attempts)
    assert (fake_answer("good"), 1) == (good.text, good.attempts)


def test_attempts_end(tmp_path: Path) -> None:
    plan = [after({"type": "status", "code": 500}, contains="bad")]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        outcome = ask(endpoint, wire_prompts(["bad"]), max_attempts=4)[0]

        assert 4 == endpoint.stats()["hits"]
    assert ("transient", 4) == (outcome.error_kind, outcome.attempts)
    assert "500" in str(outcome.error)
    assert "4 attempts" in str(outcome.error)


def test_hanging_row_times_out_alone(tmp_path: Path) -> None:
    plan = [after({"type": "hang", "s": 60}, contains="bad")]
    texts = ["bad", *(f"row {i}" for i in range(20))]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        outcomes = ask(endpoint, wire_prompts(texts), seats=2, timeout_s=0.3, max_attempts=2)

    assert [0] == [o.key for o in outcomes if o.status == "error"]
    assert "0.3 s" in str(outcomes[0].error)


def test_server_that_asks_to_wait_too_long_is_not_waited_for(tmp_path: Path) -> None:
    action = {"type": "status", "code": 429, "headers": {"Retry-After": "86400"}}
    with fake_endpoint(tmp_path, plan=[after(action, contains="bad")]) as endpoint:
        outcome = ask(endpoint, wire_prompts(["bad"]))[0]

    assert "86400 s" in str(outcome.error)
    assert 1 == outcome.attempts


def test_waiting_rows_hold_no_seat(tmp_path: Path) -> None:
    action = {"type": "status", "code": 429, "headers": {"Retry-After": "1"}}
    texts = [*(f"bad {i}" for i in range(8)), *(f"good {i}" for i in range(30))]
    with fake_endpoint(tmp_path, plan=[after(action, contains="bad", times=1)]) as endpoint:
        outcomes = ask(endpoint, wire_prompts(texts), seats=2)
        hits = endpoint.hits()

    assert {"ok"} == {o.status for o in outcomes}
    order = [json.loads(hit["body"])["prompt"] for hit in hits]
    last_good = max(i for i, prompt in enumerate(order) if prompt.startswith("good"))
    second_tries = [i for i, hit in enumerate(hits) if hit["seen"] == 2]
    assert last_good < min(second_tries)


def test_endpoint_that_restarts_costs_no_row(tmp_path: Path) -> None:
    with fake_endpoint(tmp_path) as endpoint:
        engine = http.open(
            EngineConfig(name="http", url=endpoint.url, seats=4, back_off_s=0.05)
        )
    port = endpoint.url.split(":")[2].split("/")[0]
    restarted: list[subprocess.Popen[bytes]] = []
    again = [sys.executable, str(FAKE), "--port", port, "--delay", "0.02"]
    timer = threading.Timer(
        1.0, lambda: restarted.append(subprocess.Popen(again, stdout=subprocess.DEVNULL))
    )
    timer.start()
    try:
        outcomes = answers_of(engine, wire_prompts([f"row {i}" for i in range(300)]))
        most = endpoint.stats()["max_inflight"]
    finally:
        timer.join()
        restarted[0].kill()
        restarted[0].wait()

    assert {("ok", 1)} == {(o.status, o.attempts) for o in outcomes}
    assert 4 == most  # as many as before, not the one that found it back


def test_endpoint_that_stays_away_fails_its_rows(tmp_path: Path) -> None:
    with fake_endpoint(tmp_path) as endpoint:
        engine = http.open(EngineConfig(name="http", url=endpoint.url, outage_s=0.5))
    outcome = answers_of(engine, wire_prompts(["a"]))[0]

    assert "transient" == outcome.error_kind
    assert "cannot connect" in str(outcome.error)


def test_limits_are_read_from_the_list_of_models(tmp_path: Path) -> None:
    with fake_endpoint(tmp_path, "--max-model-len", "512") as endpoint:
        limits = http.declare(EngineConfig(name="http", url=endpoint.url.removesuffix("/v1")))

        assert 0 == endpoint.stats()["hits"]
    assert "tiny" == limits.served
    assert ("wire", 512, 64) == (limits.takes, limits.max_model_tokens, limits.seats)
    assert 0 == http.declare(EngineConfig(name="http", url=endpoint.url)).max_model_tokens


def test_endpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with fake_endpoint(tmp_path) as endpoint:
        pass

    with pytest.raises(errors.EngineDied, match=endpoint.url):
        http.open(EngineConfig(name="http", url=endpoint.url))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "`engine.url`"),
        ({"url": "localhost:8000"}, "is no URL"),
        ({"url": "http://me:secret@host"}, "user or password"),
        ({"url": "http://h", "api_key": "sk-secret"}, "env:NAME"),
        ({"url": "http://h", "api_key": "env:ROWMILL_NO_SUCH"}, "not set"),
        ({"url": "http://h", "timeout": 5}, "did you mean `timeout_s`"),
    ],
)
def test_mistake_in_settings_is_found_before_any_row(
    options: dict[str, Any], words: str
) -> None:
    found = http.check_options(EngineConfig(name="http", **options))

    assert 1 == len(found)
    assert words in found[0]
    assert "secret" not in found[0]


def test_a_key_that_is_refused_stops_the_job_at_once(tmp_path: Path) -> None:
    plan = [{"action": {"type": "status", "code": 401, "body": {"error": {"message": "no"}}}}]
    texts = [f"row {i}" for i in range(200)]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        with pytest.raises(errors.Stopped, match=r"HTTP 401: no; see to `engine.api_key`"):
            ask(endpoint, wire_prompts(texts), seats=4)

        assert endpoint.stats()["hits"] <= 8


def test_whole_bodies_go_to_their_own_path_with_the_models_name(tmp_path: Path) -> None:
    bodies = [{"input": ["a", "b"], "dimensions": 8}, {"model": "tiny", "input": "c"}]
    plan = [{"contains": '"a"', "action": {"type": "embed_reverse"}}]
    prompts = wire_prompts(bodies, field="/v1/embeddings")
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        both, one = ask(endpoint, prompts)
        hits = {hit["path"]: json.loads(hit["body"]) for hit in endpoint.hits()}

    assert {"/v1/embeddings"} == set(hits)
    assert ("ok", None, 4) == (both.status, both.text, both.prompt_tokens)
    assert [0, 1] == [vector["index"] for vector in json.loads(bytes(both.body))["data"]]
    assert 1 == len(json.loads(bytes(one.body))["data"])


def test_a_row_that_names_its_model_is_answered_by_no_other(tmp_path: Path) -> None:
    named = [Sampling(extra=json.dumps({"model": model})) for model in ("tiny", "large")]
    with fake_endpoint(tmp_path) as endpoint:
        right, wrong = ask(endpoint, wire_prompts(["a", "b"], samplings=named), model="")

    assert ("ok", "error") == (right.status, wrong.status)
    assert "'large' does not exist" in str(wrong.error)


def test_a_kept_body_is_the_answer_as_it_came(tmp_path: Path) -> None:
    raw = '{"choices": [{"text": "a",  "odd": 1e3}], "mine": "\\u00e9"}'
    plan = [
        after({"type": "ok_body", "raw": raw}, contains="good"),
        after({"type": "status", "code": 404}, contains="bad"),
    ]
    with fake_endpoint(tmp_path, plan=plan) as endpoint:
        good, bad = ask(endpoint, wire_prompts(["good", "bad"]), keep_body=True)

    assert raw == bytes(good.body).decode()
    assert {"message", "type", "code"} == set(json.loads(bytes(bad.body))["error"])


def test_rows_move_on_when_one_of_two_endpoints_dies(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with fake_endpoint(tmp_path, "--delay", "0.02") as one:
        with fake_endpoint(tmp_path / "b", "--delay", "0.02") as other:
            both = f"{one.url},{other.url}"
            engine = http.open(EngineConfig(name="http", url=both, seats=8, back_off_s=0.01))
            prompts = wire_prompts([f"row {i}" for i in range(400)])
            outcomes: list[Outcome] = []
            thread = threading.Thread(
                target=lambda: outcomes.extend(answers_of(engine, prompts))
            )
            thread.start()
            while other.stats()["hits"] < 40:
                pass
        thread.join()
        hits = one.stats()["hits"]

    assert {"ok"} == {outcome.status for outcome in outcomes}
    assert [fake_answer(f"row {i}") for i in range(400)] == [o.text for o in outcomes]
    assert 200 <= hits < 400
    assert any("is down" in note for note in engine.counters()["notes"])


def test_a_proxy_of_the_environment_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_endpoint(tmp_path) as endpoint:
        proxy = endpoint.url.removesuffix("/v1")
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        engine = http.open(
            EngineConfig(name="http", url="http://rowmill.invalid", model="tiny")
        )
        (outcome,) = answers_of(engine, wire_prompts(["a"]))
        monkeypatch.delenv("http_proxy")
        (hit,) = endpoint.hits()

    assert ("ok", "http://rowmill.invalid/v1/completions") == (outcome.status, hit["path"])


def test_a_usage_that_is_not_ours_is_told(tmp_path: Path) -> None:
    prompts = wire_prompts(["x" * 400] * 120)
    prompts.ids = np.zeros(120 * 100, np.uint32)
    prompts.stops = np.arange(1, 121) * 100
    with fake_endpoint(tmp_path) as endpoint:
        engine = http.open(EngineConfig(name="http", url=endpoint.url))
        answers_of(engine, prompts)

    (note,) = engine.counters()["notes"]
    assert "401 tokens, ours 100" in note


def test_a_wait_in_milliseconds_is_kept_to(tmp_path: Path) -> None:
    action = {"type": "status", "code": 429, "headers": {"retry-after-ms": "150"}}
    with fake_endpoint(tmp_path, plan=[after(action, contains="a", times=1)]) as endpoint:
        (outcome,) = ask(endpoint, wire_prompts(["a"]))
        first, second = endpoint.hits()

    assert 2 == outcome.attempts
    assert 0.149 <= second["t"] - first["t"]


def test_seats_that_are_found_are_told_and_those_that_are_given_are_not(tmp_path: Path) -> None:
    prompts = wire_prompts([f"row {i}" for i in range(300)])
    with fake_endpoint(tmp_path, "--delay", "0.01") as endpoint:
        engines = [
            http.open(EngineConfig(name="http", url=endpoint.url, seats=seats))
            for seats in (None, 8)
        ]
        for engine in engines:
            answers_of(engine, prompts)

    found, given = (engine.counters()["seats"] for engine in engines)
    assert found >= 64
    assert 0 == given
