"""How much of a plan is executed: as it is shipped, whole plans, and one action of each, on the same seeds.

python benchmarks/execution.py [--rows ROW ...] [--episodes 250] [--out results/execution.md]

Rows of the paper with the planners that come with genplan, on test seeds. *Whole*: all actions, but for plans that are
cut because a planned state did not come. Differences are to one action per plan, with their 95 % intervals over seeds.
Rows that are in the table already are not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genplan import checkpoint, names, runs
from genplan.bench.stats import paired_difference
from genplan.evaluate import evaluate
from genplan.files import write_atomically
from genplan.metrics import METRICS, episode_values
from genplan.tasks.paper import ROWS
from genplan.types import TEST_SEEDS

WAYS: dict[str, dict[str, Any]] = {
    "one action": {"action_steps": 1},
    "as shipped": {},
    "whole plans": {"min_confidence": 0.0},
}
HEAD = """# How much of a plan is executed

`python benchmarks/execution.py`: {episodes} test seeds, one training seed. One action of each plan, as many as shipped
(up to the first of a probability below 0.7), and whole plans. SPL is against the shortest way; differences are to one
action per plan, with 95 % intervals.

| row | success: one, as shipped, whole | SPL: one, as shipped, whole | as shipped − one | whole − one | commit |
|---|---|---|---|---|---|
"""


def row_line(row: str, seeds: Sequence[int]) -> str:
    values: dict[str, list[list[float]]] = {}
    for way, options in WAYS.items():
        planner, _, task = names.load_for_eval(f"pretrained:{ROWS[row].train_task}", ROWS[row].task, options)
        rollouts = evaluate(planner, task, seeds, baseline=None).rollouts
        values[way] = [list(episode_values(METRICS[name], rollouts) or ()) for name in ("success", "spl_shortest")]
    means = [", ".join(f"{sum(one[part]) / len(seeds):.3f}" for one in values.values()) for part in (0, 1)]
    single = values.pop("one action")[1]
    found = [paired_difference((other[1], single)) for other in values.values()]
    texts = [f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for one in found]
    return f"| {row} | {' | '.join([*means, *texts])} | {runs.commit()} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--episodes", type=int, default=len(TEST_SEEDS))
    parser.add_argument("--out", type=Path, default=Path("results/execution.md"))
    arguments = parser.parse_args()
    head = HEAD.format(episodes=arguments.episodes)
    lines = arguments.out.read_text().removeprefix(head).splitlines(True) if arguments.out.exists() else []
    for row in arguments.rows:
        has_planner = ROWS[row].train_task in checkpoint.pretrained()
        if has_planner and not any(line.startswith(f"| {row} |") for line in lines):
            lines.append(row_line(row, TEST_SEEDS[: arguments.episodes]))
            write_atomically(arguments.out, (head + "".join(lines)).encode())
            print(lines[-1], end="", flush=True)


if __name__ == "__main__":
    main()
