"""Blind walks and the bot on the test seeds of every row, beside the table's figures.

python benchmarks/references.py [--episodes 250] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from genplan.planners.names import resolve
from genplan.tasks.table import ROWS, TEST_SEEDS, WALKS, WORLDS

from genplan import tasks
from genplan.evaluate import rollout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=250)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = TEST_SEEDS[: arguments.episodes]
    found: dict[str, dict[str, float]] = {}
    for name in WORLDS:
        began = time.time()
        results = rollout(resolve("bot", tasks.get(name)), tasks.get(name), seeds)
        success = sum(result.success for result in results) / len(results)
        steps = sum(result.steps for result in results) / len(results)
        found[f"bot {name}"] = {"success": success, "steps": steps}
        print(f"{name:16} bot {success:7.1%}   {steps:5.1f} steps   ({time.time() - began:.0f} s)", flush=True)
    gaps = []
    for row in ROWS.values():
        task = tasks.get(row.world)
        cells = {}
        for kind in WALKS:
            results = rollout(resolve(f"walk:{kind}", task, row.trained_on), task, seeds)
            cells[kind] = 100 * sum(result.success for result in results) / len(results)
            gaps.append(cells[kind] - row.walks[kind])
        found[f"walk {row.name}"] = cells
        print(f"{row.name:16}", *(f"{kind} {cells[kind]:5.1f} (table {row.walks[kind]})" for kind in WALKS), flush=True)
    mean = sum(gaps) / len(gaps)
    print(f"largest gap {max(abs(gap) for gap in gaps):.1f} points (limit 13), mean {mean:+.2f} (limit 2.5)")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
