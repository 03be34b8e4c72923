"""Short trainings that differ in one setting each: is memory needed, which sub-goals are worth predicting, do position
embeddings and goal proximity help, how are the methods of the benchmark best trained, what do data transforms do?

python benchmarks/ablations.py [memory|subgoals|learning|tuning|stitch|last-step|chains ...] [--steps 2000]
    [--rows ROW ...] [--only …]

Evaluated on 250 validation seeds; one line of JSON per variant in results/ablations.jsonl. What is there is not run
again, and a stopped training continues where it was (runs/ablations). Names of variants are those of the file's lines.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from genplan import checkpoint, runs, tasks
from genplan.config import override
from genplan.evaluate import evaluate
from genplan.planners.chain import ChainConfig
from genplan.planners.genplan import GenPlan
from genplan.presets import TrainConfig, default_config, default_transforms
from genplan.tasks.paper import ROWS
from genplan.types import VALIDATION_SEEDS

RESULTS = Path(__file__).parent.parent / "results" / "ablations.jsonl"
SEEDS = VALIDATION_SEEDS[:250]
# As GenPlan and LEAP were when most of these were run: no past step shown, and all steps counting alike.
THEN: dict[str, Any] = {"context_length": 1, "horizon_discount": 0.0}
MEMORY: dict[str, dict[str, Any]] = {
    "trail": {**THEN, "visit_memory": True, "position_embedding": True},
    "last 10 steps": {**THEN, "visit_memory": False, "context_length": 11, "position_embedding": True},
    "none": {**THEN, "visit_memory": False, "position_embedding": True},
}
SUBGOALS: dict[str, dict[str, Any]] = {
    " ".join(types): {**THEN, "subgoal_types": types, "position_embedding": True}
    for types in (
        ("target",),
        ("key", "target"),
        ("key", "door", "target"),
        ("blocker", "key", "door", "target"),
    )
}
# Three trainings per method, and for the one that is left as it is, two more temperatures; then one of its own, which
# became the setting of the method.
BEFORE: dict[str, dict[str, Any]] = {
    "GenPlan-M": {**THEN, "full_noise_prob": 0.125},
    "BC": {"context_length": 9},
    "DT": {"context_length": 9},
    "LEAP": {**THEN, "full_noise_prob": 0.125},
}
TRIALS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "as it is, temperature 0.25": {"temperature": 0.25},
    "as it is, temperature 1": {"temperature": 1.0},
    "half the learning rate": {"learning_rate": 1e-3},
    "dropout 0.1": {"dropout": 0.1},
}
OWN_TRIALS: dict[str, dict[str, Any]] = {
    "BC, last step only": {"context_length": 2},
    "DT, last step only": {"context_length": 2},
    "GenPlan-M, half of the windows as noise": {**THEN, "full_noise_prob": 0.5},
    "LEAP, half of the windows wholly masked": {**THEN, "full_noise_prob": 0.5},
    "GenPlan-M, and near steps counting more, the last step read": {},
    "LEAP, and near steps counting more, the last step read": {"context_length": 2},
    "LEAP, and near steps counting more, alone": {"context_length": 1},
    "LEAP, one action masked where not all are": {"context_length": 2, "single_mask_prob": 1.0},
}
TUNING: dict[str, dict[str, Any]] = {
    f"{method}, {name}": {"method": method, **before, **options}
    for method, before in BEFORE.items()
    for name, options in TRIALS.items()
} | {name: {"method": name.partition(",")[0], **options} for name, options in OWN_TRIALS.items()}
LEARNING: dict[str, dict[str, Any]] = {
    "positions, haste 0.7": {**THEN, "position_embedding": True, "goal_proximity_exponent": 0.7},
    "positions, haste 0": {**THEN, "position_embedding": True, "goal_proximity_exponent": 0.0},
    "haste 0.7": {**THEN, "goal_proximity_exponent": 0.7},
    "neither": {**THEN, "goal_proximity_exponent": 0.0},
}
STITCH: dict[str, dict[str, Any]] = {
    f"{method}, clutter {most}, stitch {stitch}{f', curiosity {curiosity}' if curiosity else ''}": {
        "method": method,
        "transforms": {"map_randomization": bool(most), "stitch": bool(stitch)},
        "exploration": curiosity,
    }
    for method in ("GenPlan-M", "BC")
    for most, stitch in ((10, 4000), (10, 0), (0, 4000))
    for curiosity in (0.5, 0)
}
# Whether the last step is shown in the training task of the adaptive rows, where LEAP is better off without it.
LAST_STEP: dict[str, dict[str, Any]] = {
    f"{method}, {name}, curiosity 0.5": {"method": method, "context_length": context + 1, "exploration": 0.5}
    for method in ("BC", "DT")
    for name, context in (("the last step read", 1), ("the last step not read", 0))
}
# The parts of chains: first those of the training, then those of planning, with the first training.
CHAINS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no prefixes": {"prefix_prob": 0.0},
    "all steps counting alike": {"horizon_discount": 0.0},
    "no position embeddings": {"position_embedding": False},
    "loops left in": {"transforms": {"erase_loops": False}},
    "no value iteration": {"value_iteration": False},
} | {
    f"as it is, {name} {value}": {name: value}
    for name, value in {
        "cost_weight": 0.0, "state_weight": 0.0, "cutoff": 0.0, "min_confidence": 0.0, "beam_width": 1, "adapt": False,
        "preparation_price": 0.0, "try_price": 0.0, "visit_price": 0.0, "order": "near-to-far",
    }.items()
}  # fmt: skip
# Settings of planning, and what names of variants call them.
OPTIONS = {"temperature": "temperature", "exploration": "curiosity", "order": "order"} | {
    field.name: field.name for field in dataclasses.fields(ChainConfig) if field.name in GenPlan.options
}
ADAPTIVE = tuple(row.name for row in ROWS.values() if row.split == "AP")
STUDIES = {
    "memory": (("KeyCorridorS3R3", "MazeS4G2"), MEMORY),
    "subgoals": (("KeyCorridorS3R3", "BlockUnlock"), SUBGOALS),
    "learning": (("KeyCorridorS3R3", "MazeClose", "MazeS4G2", "DoorsOrder"), LEARNING),
    "tuning": (("MazeS4G1",), TUNING),
    "stitch": (ADAPTIVE, STITCH),
    "last-step": (ADAPTIVE, LAST_STEP),
    "chains": (("MazeS4G1", "MazeClose", "MazeS4N3G1"), CHAINS),
}


def measure(study: str, row: str, variant: str, settings: dict[str, Any], steps: int) -> dict[str, Any]:
    train_task, method = ROWS[row].train_task, settings.pop("method", "GenPlan-M")
    switched = {name: on for name, on in settings.pop("transforms", {}).items() if not on}
    transforms = [one for one in default_transforms(train_task) if one["name"] not in switched]
    options = {name: settings.pop(name) for name in OPTIONS if name in settings}
    planner, training = default_config(train_task, method)
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    of_training = {name: value for name, value in settings.items() if name in known}
    planner = override(planner, **{name: value for name, value in settings.items() if name not in of_training})
    training = override(training, steps=steps, **of_training)
    trained = min((variant.partition(f", {name}")[0] for name in OPTIONS.values()), key=len).replace(" ", "_")
    folder = Path("runs/ablations") / f"{study}-{train_task}-{trained}-{steps}"
    if (folder / "config.json").exists():
        trainer = runs.resume_run(folder)
    else:
        trainer = runs.create_run(folder, train_task, method, planner, training, transforms=transforms)
    trainer.fit(lambda now: print(f"{row}, {variant}: step {now.step} of {now.steps}", end="\r", flush=True))
    model, config = checkpoint.load_planner(folder)
    task = tasks.get(ROWS[row].task)
    found = evaluate(model.with_options(**options).for_spec(task.spec), task, SEEDS, baseline=None).planner
    success = found.metrics["success"]
    assert success is not None
    return {
        "study": study,
        "row": row,
        "variant": variant,
        "steps": steps,
        "success": success.value,
        "success_interval": [success.low, success.high],
        **{name: found.value(name) for name in ("spl", "spl_shortest", "stalling", "plan_agreement", "arrival")},
        "cpu_minutes": round(trainer.cpu_seconds / 60, 1),
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
