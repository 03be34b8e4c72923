"""Beside every planner that is shipped: the same one untrained; and LocS10N1 as it comes on the adaptive rows.

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

from genplan import runs, tasks
from genplan.evaluate import evaluate
from genplan.export import shipped
from genplan.planners.names import resolve
from genplan.tasks.table import ROWS, TEST_SEEDS

RESULTS = Path(__file__).parent.parent / "results" / "controls.jsonl"


def wanted(name: str, trained_on: str) -> list[tuple[str, bool]]:
    """(row, untrained) of a planner."""
    own = [(row, True) for row in tasks.worlds_of(trained_on) if row in ROWS]
    return own + [(row.name, False) for row in ROWS.values() if row.family == "AP" and row.trained_on == name]


def measure(name: str, row: str, untrained: bool) -> dict[str, Any]:
    planner, config = runs.load(runs.locate(f"pretrained:{name}"))
    if untrained:
        planner = runs.untrained(config).eval()
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
        for row, untrained in wanted(name, card["task"]):
            key = {"planner": name, "weights": card["weights"], "row": row, "untrained": untrained}
            lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
            line = next((line for line in lines if key.items() <= line.items()), None)
            if line is None:
                line = {**key, **measure(name, row, untrained)}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            what = "untrained" if untrained else "as it comes"
            print(
                f"{name} {what} on {row}: {line['success']:.1%}, walk {line['walk']:.1%}, {line['seconds']} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
