"""Beside every planner that comes with genplan: the same one untrained.

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

from genplan import checkpoint, runs, tasks
from genplan.evaluate import evaluate
from genplan.names import load_planner
from genplan.tasks.paper import ROWS
from genplan.types import TEST_SEEDS

RESULTS = Path(__file__).parent.parent / "results" / "controls.jsonl"


def measure(folder: Path, row: str) -> dict[str, Any]:
    planner = checkpoint.untrained(checkpoint.read_config(folder)).eval()
    task = tasks.get(ROWS[row].task)
    random = load_planner("random:demos", task, ROWS[row].train_task)
    start_time = time.time()
    found = evaluate(planner.for_spec(task.spec), task, TEST_SEEDS, baseline=random)
    assert found.random is not None
    metrics = {name: None if one is None else one.value for name, one in found.planner.metrics.items()}
    return {
        **metrics,
        "seconds": round(found.planner.seconds, 1),
        "random": found.random.value("success"),
        "commit": runs.commit(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_time)),
    }


def main() -> None:
    for name, folder in checkpoint.pretrained().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        card = json.loads((folder / "card.json").read_text())
        for row in tasks.task_names(card["task"]):
            if row not in ROWS:
                continue
            key = {"planner": name, "weights": card["weights"], "row": row, "untrained": True}
            lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
            line = next((line for line in lines if key.items() <= line.items()), None)
            if line is None:
                line = {**key, **measure(folder, row)}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            print(f"{name} untrained on {row}: {line['success']:.1%}, {line['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
