"""Lengths of the shortest episodes of the test and validation seeds, by search: writes src/genplan/envs/shortest.json.

python benchmarks/shortest.py [--envs MazeS4G1 …] [--again]

Environments that are complete in the file are skipped, so that an interrupted run goes on; `--again` searches anew.
"""

from __future__ import annotations

import argparse
import json
import time

from genplan.envs import ENVS
from genplan.envs.shortest import STORED, search_steps

FIRST_SEEDS = (1_234, 2_000)  # test, validation
NUM_SEEDS = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", choices=list(ENVS), default=list(ENVS))
    parser.add_argument("--again", action="store_true", help="search environments that are complete already")
    arguments = parser.parse_args()
    lengths: dict[str, dict[str, list[int | None]]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in arguments.envs:
        if not arguments.again and set(lengths.get(name, {})) == {str(first) for first in FIRST_SEEDS}:
            print(f"{name:16} complete")
            continue
        found: dict[str, list[int | None]] = {}
        seconds: list[float] = []
        for first in FIRST_SEEDS:
            found[str(first)] = []
            for seed in range(first, first + NUM_SEEDS):
                start_time = time.thread_time()
                found[str(first)].append(search_steps(name, seed))
                seconds.append(time.thread_time() - start_time)
                if len(seconds) % 25 == 0:
                    print(f"\r{name:16} {len(seconds):4} / {len(FIRST_SEEDS) * NUM_SEEDS}", end="", flush=True)
        # Written after every environment and in one move: an interrupted run leaves a whole file.
        lengths[name] = found
        partial = STORED.with_suffix(".json.tmp")
        partial.write_text(
            json.dumps({env: lengths[env] for env in ENVS if env in lengths}, separators=(",", ":")) + "\n"
        )
        partial.replace(STORED)
        known = [length for part in found.values() for length in part if length is not None]
        missing = len(seconds) - len(known)
        mean_steps = sum(known) / len(known) if known else float("nan")
        print(
            f"\r{name:16} {mean_steps:6.2f} steps, {missing} not found,"
            f" {1e3 * sum(seconds) / len(seconds):6.1f} ms per seed, at most {1e3 * max(seconds):6.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
