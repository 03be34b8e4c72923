"""Your own robot: demonstrations of an environment with Box spaces, to a planner of action chunks, and its evaluation.

python examples/robot.py reach/human-v0              # any Minari dataset of it; or, of a LeRobot v3 folder, first:
genplan data import lerobot FOLDER --task examples/robot.py:task --name reach/human-v0
"""

import sys
from pathlib import Path

import gymnasium

from genplan import checkpoint, config, presets, runs
from genplan.evaluate import evaluate
from genplan.names import load_planner
from genplan.tasks import task_from_gym

if "Reach-v0" not in gymnasium.registry:
    gymnasium.register("Reach-v0", entry_point="reach_env:Reach", max_episode_steps=40)
task = task_from_gym("Reach-v0", name="Reach")
CHUNKS = {"codec": "residual", "levels": 2, "codes": 16, "horizon": 8, "action_steps": 4, "frame_stack": True,
          "context_length": 2, "iterations": 4, "temperature": 0.3}  # fmt: skip


def main(dataset, folder=Path("runs/robot"), steps=300, episodes=20):
    name = f"{__file__}:task"
    planner, training = presets.default_config(name, "GenPlan-M")
    planner = config.override(planner, **CHUNKS)
    training = config.override(training, steps=steps, warmup_steps=20, windows_per_scene=1, ema_decay=0.98)
    runs.create_run(folder, name, "GenPlan-M", planner, training, dataset).fit()
    trained, _ = checkpoint.load_planner(folder)
    found = evaluate(trained, task, range(2000, 2000 + episodes), baseline=load_planner("random:uniform", task))
    print({player: round(score.value("return"), 2) for player, score in found.scores.items()})
    return found


if __name__ == "__main__":
    main(sys.argv[1])
