"""The fault campaign: episodes until so many faults were seen to take effect, and a table of them.

python -m tests.chaos.campaign --faults 1000 --seed 1 --out FILE     a line of JSON an episode, then the table
python -m tests.chaos.campaign --sum FILE ...                        the table of several runs
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cases.small_disk import small_disk
from tests.chaos import strikes
from tests.chaos.scene import Scene, Toll
from tests.chaos.schedule import AT_STORES, LANES, Episode, Lane, draw_episode
from tests.chaos.scripts import Script
from tests.chaos.sharing import strike_pair
from tests.chaos.store import StoreScene, make_bucket, store_gone, store_scene
from tests.kill.left import Broken
from tests.kill.small_job import SOURCE, draw_job
from tests.kill.trials import ended
from tests.servers.s3_server import NoServer, S3Server, seaweed

STRIKES = {
    "parent killed": strikes.parent_killed,
    "torn tail": strikes.torn_tail,
    "both killed": strikes.both_killed,
    "engine killed": strikes.engine_killed,
    "engine stopped": strikes.engine_stopped,
    "engine frozen": strikes.engine_frozen,
    "second start": strikes.second_start,
    "file size limit": strikes.file_size_limit,
    "disk full": strikes.disk_full,
    "store gone": store_gone,
}
DISK_SIZE = "4m"
MOST_BROKEN = 5


def run_episode(
    episode: Episode, folder: Path, *, server: S3Server | None = None, source: Path = SOURCE
) -> Toll:
    """Run a job through its faults to its end, and see that every row came out once and right.

    Args:
        server: for the lanes of stores.

    Raises:
        Broken: a promise did not hold.
    """
    job = draw_job(
        episode.rng,
        folder,
        source=source,
        settings=episode.settings,
        has_equals=episode.has_equals,
        kind=episode.kind,
    )
    script = Script(episode, job)
    with ExitStack() as stack:
        if episode.lane == "small disk":
            stack.enter_context(small_disk(job.out, size=DISK_SIZE))
        scene = Scene(script.job, killers=script.killers)
        if episode.lane in AT_STORES:
            assert server is not None, "what lies in a store needs a server"
            scene = stack.enter_context(
                store_scene(episode, script.job, server, killers=script.killers)
            )
        stack.enter_context(ended(scene.job))
        if episode.has_two_workers:
            strike_pair(scene, episode.strikes)
        for strike in () if episode.has_two_workers else episode.strikes:
            STRIKES[strike.fault](scene, strike)
        scene.end()
        script.count(scene)
        if isinstance(scene, StoreScene):
            scene.count_harms()
        scene.check_bound()
    return scene.toll


def told(episode: Episode, folder: Path, server: S3Server | None) -> dict[str, Any]:
    """An episode, run and told as one line; the folder of one that found a broken promise is kept."""
    line: dict[str, Any] = {
        "seed": episode.seed,
        "number": episode.number,
        "lane": episode.lane,
    }
    began = time.monotonic()
    try:
        line |= vars(run_episode(episode, folder / "job", server=server))
    except Broken as broken:
        line |= {"broken": str(broken), "folder": str(folder)}
    except pytest.skip.Exception as skipped:
        line["skipped"] = str(skipped)
    finally:
        if "broken" not in line:
            shutil.rmtree(folder, ignore_errors=True)
    return line | {"seconds": round(time.monotonic() - began, 2)}


def table(lines: Iterable[dict[str, Any]]) -> str:
    """Faults by kind, and what they came to, in Markdown."""
    episodes = list(lines)
    seen, unseen = (
        sum((Counter(line.get(name, {})) for line in episodes), Counter[str]())
        for name in ("observed", "unseen")
    )
    rows = [f"| {fault} | {seen[fault]} | {unseen[fault]} |" for fault in sorted(seen | unseen)]
    rows.append(f"| all | {seen.total()} | {unseen.total()} |")
    repeated, allowed = (
        sum(line.get(name, 0) for line in episodes) for name in ("repeated", "allowed")
    )
    broken = [line for line in episodes if "broken" in line]
    rows += [
        "",
        f"{len(episodes)} episodes of seed {', '.join(sorted({str(e['seed']) for e in episodes}))},"
        f" {sum(line['seconds'] for line in episodes):,.0f} s; broken promises: {len(broken)};"
        f" rows repeated {repeated:,}, allowed {allowed:,};"
        f" skipped: {sum('skipped' in line for line in episodes)}",
    ]
    return "\n".join(["| fault | seen | not seen |", "|---|---|---|", *rows]) + "\n"


def campaign(
    *, seed: int, faults: int, first: int = 0, lanes: Sequence[Lane] = ()
) -> Iterator[dict[str, Any]]:
    """Episodes one after the other, until so many faults were seen, or some promises broken."""
    num_seen = num_broken = 0
    with contextlib.closing(_episodes(seed, first, lanes)) as lines:
        for line in lines:
            yield line
            num_seen += sum(line.get("observed", {}).values())
            num_broken += "broken" in line
            if num_seen >= faults or num_broken >= MOST_BROKEN:
                return
            if "skipped" in line and len(lanes) == 1:
                return


def _episodes(seed: int, first: int, lanes: Sequence[Lane]) -> Generator[dict[str, Any]]:
    """Episodes without an end, over one server."""
    with ExitStack() as stack:
        server: S3Server | None = None
        for number in itertools.count(first):
            episode = draw_episode(seed, number, lanes[number % len(lanes)] if lanes else None)
            if episode.lane in AT_STORES and server is None:
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-s3-"))
                try:
                    server = stack.enter_context(seaweed(Path(place)))
                except NoServer as error:
                    yield {"seed": seed, "number": number, "skipped": str(error), "seconds": 0}
                    continue
                make_bucket(server)
            yield told(episode, Path(tempfile.mkdtemp(prefix="chaos-")), server)


def main(words: list[str]) -> int:
    """The command. Returns: 1 where a promise was broken."""
    asked = _asked(words)
    # So that servers and disks are given back, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if asked.sum:
        lines = [json.loads(row) for path in asked.sum for row in path.open()]
    else:
        lines = []
        for line in campaign(
            seed=asked.seed, faults=asked.faults, first=asked.first, lanes=asked.lanes
        ):
            lines.append(line)
            text = json.dumps(line, ensure_ascii=False) + "\n"
            if "broken" in line:
                sys.stderr.write(text)
            if asked.out:
                with asked.out.open("a") as out:
                    out.write(text)
    sys.stdout.write(table(lines))
    return int(any("broken" in line for line in lines))


def _asked(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=50, help="so many must be seen")
    parser.add_argument("--first", type=int, default=0, help="number of the first episode")
    parser.add_argument("--lanes", nargs="*", default=[], choices=LANES)
    parser.add_argument("--out", type=Path, help="a line of JSON an episode is added to it")
    parser.add_argument("--sum", type=Path, nargs="*", help="files that `--out` made: no runs")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
