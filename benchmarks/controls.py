"""Beside every planner that is shipped: the same one untrained.

python benchmarks/controls.py [PLANNER ...]

250 test seeds each; one line of JSON per planner and row in results/controls.jsonl. What is there for the same weights
is not run again.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from genplan.planners.names import resolve
from genplan.tasks.table import ROWS, TEST_SEEDS

from genplan import runs, tasks
from genplan.evaluate import evaluate
from genplan.export import shipped

RESULTS = Path(__file__).parent.parent / "results" / "controls.jsonl"


def measure(name: str, row: str) -> dict[str, Any]:
    planner = runs.untrained(runs.load(runs.locate(f"pretrained:{name}"))[1]).eval()
    task = tasks.get(ROWS[row].world)
    walk = resolve("walk:demos", task, ROWS[row].trained_on)
    began = time.time()
    found = evaluate(planner.on(task.spec), task, TEST_SEEDS, walk=walk, execute=planner.config.execute)
    assert found.walk is not None
    return {
        "success": found.planner.success,
        "success_interval": found.planner.success_interval,
        "spl": found.planner.spl,
        "stall": found.planner.stall,
        "mean_steps": found.planner.mean_steps,
        "seconds": round(found.planner.seconds, 1),
        "walk": found.walk.success,
        "commit": runs.commit(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
    }


def main() -> None:
    for name, folder in shipped().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        card = json.loads((folder / "card.json").read_text())
        for row in tasks.worlds_of(card["task"]):
            if row not in ROWS:
                continue
            key = {"planner": name, "weights": card["weights"], "row": row, "untrained": True}
            lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
            line = next((line for line in lines if key.items() <= line.items()), None)
            if line is None:
                line = {**key, **measure(name, row)}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            print(
                f"{name} untrained on {row}: {line['success']:.1%}, walk {line['walk']:.1%}, {line['seconds']} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
