"""Short trainings that differ in one setting each: is memory needed, which sub-goals are worth predicting, do codes
of places and haste help, how are the methods of the benchmark best trained, what do clutter and stitching do?

python benchmarks/ablations.py [memory|subgoals|learning|tuning|stitch|last-step ...] [--steps 2000] [--rows ROW ...]
    [--only …]

Judged on 250 validation seeds; one line of JSON per variant in results/ablations.jsonl. What is there is not run again,
and a stopped training goes on where it was (runs/ablations).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from genplan.tasks.table import ROWS, VALIDATION_SEEDS

from genplan import runs, tasks
from genplan.config import TrainConfig, settings
from genplan.evaluate import evaluate

RESULTS = Path(__file__).parent.parent / "results" / "ablations.jsonl"
SEEDS = VALIDATION_SEEDS[:250]
# As GenPlan and LEAP were when most of these were run: no look back beside the trail, and all steps counting alike.
THEN: dict[str, Any] = {"context": 0, "nearness": 0.0}
MEMORY: dict[str, dict[str, Any]] = {
    "trail": {**THEN, "trail": True, "positions": True},
    "last 10 steps": {**THEN, "trail": False, "context": 10, "positions": True},
    "none": {**THEN, "trail": False, "positions": True},
}
SUBGOALS: dict[str, dict[str, Any]] = {
    " ".join(kinds): {**THEN, "goal_kinds": kinds, "positions": True}
    for kinds in (
        ("target",),
        ("key", "target"),
        ("key", "door", "target"),
        ("blocker", "key", "door", "target"),
    )
}
# Three trainings per method, and for the one that is left as it is, two more temperatures; then one of its own, which
# became the setting of the method.
BEFORE: dict[str, dict[str, Any]] = {
    "GenPlan-M": {**THEN, "noise_share": 0.125},
    "BC": {"context": 8},
    "DT": {"context": 8},
    "LEAP": {**THEN, "noise_share": 0.125},
}
TRIALS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "as it is, temperature 0.25": {"temperature": 0.25},
    "as it is, temperature 1": {"temperature": 1.0},
    "half the learning rate": {"learning_rate": 1e-3},
    "dropout 0.1": {"dropout": 0.1},
}
OWN_TRIALS: dict[str, dict[str, Any]] = {
    "BC, last step only": {"context": 1},
    "DT, last step only": {"context": 1},
    "GenPlan-M, half of the windows as noise": {**THEN, "noise_share": 0.5},
    "LEAP, half of the windows wholly masked": {**THEN, "noise_share": 0.5},
    "GenPlan-M, and near steps counting more, the last step read": {},
    "LEAP, and near steps counting more, the last step read": {"context": 1},
    "LEAP, and near steps counting more, alone": {"context": 0},
    "LEAP, one action masked where not all are": {"context": 1, "single_share": 1.0},
}
TUNING: dict[str, dict[str, Any]] = {
    f"{method}, {name}": {"method": method, **before, **options}
    for method, before in BEFORE.items()
    for name, options in TRIALS.items()
} | {name: {"method": name.partition(",")[0], **options} for name, options in OWN_TRIALS.items()}
LEARNING: dict[str, dict[str, Any]] = {
    "positions, haste 0.7": {**THEN, "positions": True, "haste": 0.7},
    "positions, haste 0": {**THEN, "positions": True, "haste": 0.0},
    "haste 0.7": {**THEN, "haste": 0.7},
    "neither": {**THEN, "haste": 0.0},
}
STITCH: dict[str, dict[str, Any]] = {
    f"{method}, clutter {most}, stitch {stitch}{f', curiosity {curiosity}' if curiosity else ''}": {
        "method": method,
        "clutter": most,
        "stitch": stitch,
        "join": "and" if stitch else "",
        "curiosity": curiosity,
    }
    for method in ("GenPlan-M", "BC")
    for most, stitch in ((10, 4000), (10, 0), (0, 4000))
    for curiosity in (0.5, 0)
}
# Whether the last step is read in the training world of the adaptive rows, where LEAP is better off without it.
LAST_STEP: dict[str, dict[str, Any]] = {
    f"{method}, {name}, curiosity 0.5": {"method": method, "context": context, "curiosity": 0.5}
    for method in ("BC", "DT")
    for name, context in (("the last step read", 1), ("the last step not read", 0))
}
USED = ("temperature", "curiosity")  # not a matter of learning
ADAPTIVE = tuple(row.name for row in ROWS.values() if row.family == "AP")
STUDIES = {
    "memory": (("KeyCorridorS3R3", "MazeS4G2"), MEMORY),
    "subgoals": (("KeyCorridorS3R3", "BlockUnlock"), SUBGOALS),
    "learning": (("KeyCorridorS3R3", "MazeClose", "MazeS4G2", "DoorsOrder"), LEARNING),
    "tuning": (("MazeS4G1",), TUNING),
    "stitch": (ADAPTIVE, STITCH),
    "last-step": (ADAPTIVE, LAST_STEP),
}


def measure(study: str, row: str, variant: str, options: dict[str, Any], steps: int) -> dict[str, Any]:
    world = ROWS[row].trained_on
    planner, training = settings(world, method=options.pop("method", "GenPlan-M"))
    used = {name: options.pop(name) for name in USED if name in options}
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    planner = dataclasses.replace(planner, **{name: value for name, value in options.items() if name not in known})
    training = dataclasses.replace(
        training, steps=steps, **{name: value for name, value in options.items() if name in known}
    )
    learnt = min((variant.partition(f", {name}")[0] for name in USED), key=len).replace(" ", "_")
    folder = Path("runs/ablations") / f"{study}-{world}-{learnt}-{steps}"
    run = runs.resume(folder) if (folder / "config.json").exists() else runs.begin(folder, world, planner, training)
    run.fit(lambda now: print(f"{row}, {variant}: step {now.step} of {now.steps}", end="\r", flush=True))
    trained, config = runs.load(folder)
    task = tasks.get(ROWS[row].world)
    player = trained.with_options(**used).on(task.spec)
    found = evaluate(player, task, SEEDS, walk=None, execute=planner.execute).planner
    return {
        "study": study,
        "row": row,
        "variant": variant,
        "steps": steps,
        "success": found.success,
        "success_interval": found.success_interval,
        "spl": found.spl,
        "stall": found.stall,
        "cpu_minutes": round(run.seconds / 60, 1),
        "seeds": [SEEDS[0], SEEDS[-1]],
        "commit": config["commit"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rows", nargs="*", default=None)
    parser.add_argument("--only", default="", help="only variants whose name begins so")
    chosen = parser.parse_args()
    for study in chosen.studies:
        rows, variants = STUDIES[study]
        for row in chosen.rows or rows:
            for variant, options in variants.items():
                if not variant.startswith(chosen.only):
                    continue
                wanted = {"study": study, "row": row, "variant": variant, "steps": chosen.steps}
                lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
                line = next((line for line in lines if wanted.items() <= line.items()), None)
                if line is None:
                    line = measure(study, row, variant, dict(options), chosen.steps)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                print(f"{study}: {row}, {variant}: {line['success']:.1%}, SPL {line['spl']:.3f}", flush=True)


if __name__ == "__main__":
    main()
