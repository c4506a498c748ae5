"""Engine `http` beside other clients: an endpoint that fails, and one that is fast.

    python benchmarks/over_http.py faults [--others PYTHON] [--over refuse]
    python benchmarks/over_http.py fast [--rows 50000]

`faults`: 10% of requests get 429, 5% 500, 1% a cut body, 1% no answer at all; the endpoint works on 64 at once, 0.25 s
each (`--service-s`), so that 256 answers a second is the most it gives. Every client has 128 seats, a time-out of four
times that, and 10 attempts a row. Told is what the endpoint saw, from the first request to the last answer.
`--others` is the python of an environment with openai and ray.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SLOTS = 64
MOST_S = 600
FAULTS = [
    "--rate-429",
    "0.1",
    "--rate-500",
    "0.05",
    "--rate-cut",
    "0.01",
    "--rate-hang",
    "0.01",
]


@contextmanager
def endpoint(*flags: str) -> Iterator[str]:
    """Root of an endpoint; ended by its pid."""
    command = [sys.executable, str(HERE / "endpoint.py"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats") as response:
        found: dict[str, Any] = json.load(response)
    return found


def write_rows(path: Path, rows: int) -> None:
    with path.open("w") as lines:
        for i in range(rows):
            body = {"model": "tiny", "prompt": f"item {i} " + "word " * 20, "max_tokens": 16}
            line = {
                "custom_id": f"c{i}",
                "method": "POST",
                "url": "/v1/completions",
                "body": body,
            }
            lines.write(json.dumps(line) + "\n")


def ours(source: Path, url: str, *sets: str) -> dict[str, Any]:
    """A run of rowmill, told by itself."""
    command = [
        sys.executable,
        "-m",
        "rowmill",
        "run",
        str(source),
        "-o",
        str(source.with_suffix(".out")),
    ]
    command += ["--url", url, "--model", "tiny", "--json"]
    for one in sets:
        command += ["--set", one]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {
        "answered": told["ok"],
        "seconds": round(told["seconds"], 2),
        "retries": told["retries"],
    }


def others(
    python: str, name: str, source: Path, url: str, options: argparse.Namespace
) -> dict[str, Any]:
    command = [python, str(HERE / "http_others.py"), name, "--url", url, "--input", str(source)]
    command += ["--out", str(source.with_suffix(f".{name}")), "--seats", str(options.seats)]
    command += ["--timeout-s", str(4 * options.service_s)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MOST_S
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        found = {"answered": 0, "seconds": None, "error": done.stderr.strip().splitlines()[-1:]}
    except subprocess.TimeoutExpired:
        found = {"answered": 0, "seconds": None, "error": f"not done in {MOST_S} s"}
    return found


def contend(name: str, source: Path, url: str, options: argparse.Namespace) -> dict[str, Any]:
    if name != "rowmill":
        return others(options.others, name, source, url, options)
    sets = [f"engine.timeout_s={4 * options.service_s}", f"engine.seats={options.seats}"]
    return ours(source, url, "engine.max_attempts=10", *sets)


def faults(options: argparse.Namespace) -> None:
    contenders = ["rowmill", *(["openai", "ray"] if options.others else [])]
    flags = [
        "--slots",
        str(SLOTS),
        "--service-s",
        str(options.service_s),
        "--over",
        options.over,
        *FAULTS,
    ]
    limit = SLOTS / options.service_s
    print(
        "| client | rows answered | requests a row | seconds at the endpoint | answers/s | of its limit |"
    )
    print("|---|---|---|---|---|---|")
    for name in contenders:
        with tempfile.TemporaryDirectory() as folder, endpoint(*flags) as url:
            source = Path(folder) / "rows.jsonl"
            write_rows(source, options.rows)
            found = contend(name, source, url, options)
            seen = stats(url)
        rate = seen["told"].get("200", 0) / max(seen["seconds"], 1e-9)
        print(
            f"| {name} | {found['answered']:,} | {seen['requests'] / options.rows:.3f} | {seen['seconds']:.1f}"
            f" | {rate:.0f} | {rate / limit:.1%} |",
            flush=True,
        )
        print(f"{name}: {found} {seen}", file=sys.stderr, flush=True)


def fast(options: argparse.Namespace) -> None:
    print("| rows | seconds | requests/s |")
    print("|---|---|---|")
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder, endpoint() as url:
            source = Path(folder) / "rows.jsonl"
            write_rows(source, options.rows)
            began = time.monotonic()
            found = ours(source, url)
            whole_s = time.monotonic() - began
        rate = found["answered"] / found["seconds"]
        print(
            f"| {found['answered']:,} | {found['seconds']} ({whole_s:.1f} with start and publishing) | {rate:,.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["faults", "fast"], default="fast")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument(
        "--seats", type=int, default=128, help="most requests at once, of every client"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--service-s", type=float, default=0.25, help="seconds that an answer takes"
    )
    parser.add_argument("--over", choices=["wait", "refuse"], default="wait")
    parser.add_argument("--others", default="", help="python with openai and ray")
    options = parser.parse_args()
    {"faults": faults, "fast": fast}[options.what](options)


if __name__ == "__main__":
    main()
