"""Random policies and the expert on the test seeds of every row, beside the table's figures.

python benchmarks/references.py [--episodes 250] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from genplan import tasks
from genplan.envs import ENVS
from genplan.names import load_planner
from genplan.rollout import play
from genplan.tasks.paper import RANDOM_POLICIES, ROWS
from genplan.types import TEST_SEEDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=250)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = TEST_SEEDS[: arguments.episodes]
    found: dict[str, dict[str, float]] = {}
    for name in ENVS:
        start_time = time.time()
        rollouts = play(load_planner("expert", tasks.get(name)), tasks.get(name), seeds)
        success = sum(one.success for one in rollouts) / len(rollouts)
        steps = sum(one.num_steps for one in rollouts) / len(rollouts)
        found[f"expert {name}"] = {"success": success, "steps": steps}
        print(f"{name:16} expert {success:7.1%}   {steps:5.1f} steps   ({time.time() - start_time:.0f} s)", flush=True)
    gaps = []
    for row in ROWS.values():
        task = tasks.get(row.task)
        cells = {}
        for policy in RANDOM_POLICIES:
            rollouts = play(load_planner(f"random:{policy}", task, row.train_task), task, seeds)
            cells[policy] = 100 * sum(one.success for one in rollouts) / len(rollouts)
            gaps.append(cells[policy] - row.random[policy])
        found[f"random {row.name}"] = cells
        shown = (f"{policy} {cells[policy]:5.1f} (table {row.random[policy]})" for policy in RANDOM_POLICIES)
        print(f"{row.name:16}", *shown, flush=True)
    mean = sum(gaps) / len(gaps)
    print(f"largest gap {max(abs(gap) for gap in gaps):.1f} points (limit 13), mean {mean:+.2f} (limit 2.5)")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
