"""Settings of trainings, and the settings of planners and trainings for each task and method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from genplan import config, planners, tasks
from genplan.data.transforms import transform_to_json
from genplan.errors import UserError
from genplan.models.settings import at_least
from genplan.tasks.paper import ROWS

PRESETS = ("default", "paper")


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Checked when made; saved with the run."""

    steps: int = 5000
    batch_size: int = 128
    windows_per_scene: int = 8  # windows that share a scene, and so its encoding
    learning_rate: float = 2e-3
    warmup_steps: int = 200
    weight_decay: float = 0.05
    max_grad_norm: float = 1.0
    ema_decay: float = 0.999  # of the averaged weights, which are the planner's
    goal_proximity_exponent: float = 0.7  # windows n steps before the next goal are sampled in proportion to n ** −this
    seed: int = 0
    threads: int = 1  # operations are small: a second thread costs as much as it gives below batches of 256
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"] = "32-true"
    log_every: int = 50
    validate_every: int = 500
    save_every: int = 250
    keep_checkpoints: bool = False  # keep every saved model, not just the best and the last
    evaluate_every: int = 0  # play validation seeds that often (0: never)
    evaluate_episodes: int = 50

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "log_every", "validate_every", "save_every", most=10**9)
        at_least(self, 1, "batch_size", "windows_per_scene", "evaluate_episodes", most=2**16)
        at_least(self, 1, "threads", most=256)
        for name in ("learning_rate", "max_grad_norm"):
            if not 0 < getattr(self, name) <= 10**6:
                raise UserError(f"{name} is {getattr(self, name)}, expected more than 0, and at most {10**6}")
        at_least(self, 0, "warmup_steps", "evaluate_every", most=10**9)
        at_least(self, 0, "weight_decay", "goal_proximity_exponent")
        at_least(self, 0, "seed", most=2**32)
        if self.batch_size % self.windows_per_scene:
            found, each = self.batch_size, self.windows_per_scene
            raise UserError(f"batch_size is {found}, expected a multiple of windows_per_scene, {each}")
        if not 0 <= self.ema_decay < 1:
            raise UserError(f"ema_decay is {self.ema_decay}, expected 0 to below 1")


WAYPOINTS = ("blocker", "key", "door", "target")
GRID = {"position_embedding": True, "word_attention": True, "context_length": 2, "visit_memory": True}
LARGE = {"encoder_iterations": 36, **GRID}
ROBOT = {
    "hidden_size": 128, "context_length": 2, "frame_stack": True, "codec": "residual", "horizon": 8, "action_steps": 4,
    "iterations": 4, "conditioning_prob": 0.5, "temperature": 0.3,
    "goal_temperature": 1.0, "entropy_bound": 0.0, "horizon_discount": 0.0,
}  # fmt: skip
ROBOT_TRAINING = {
    "batch_size": 256, "windows_per_scene": 1, "learning_rate": 1e-3, "ema_decay": 0.998,
    "goal_proximity_exponent": 0.0,
}  # fmt: skip
Settings = Mapping[str, Any]
# What differs from one task to another in the preset `default`, for the planner and for the training. Settings that a
# method does not have are ignored.
TASK_SETTINGS: Mapping[str, tuple[Settings, Settings]] = {
    "MazeS4G1": (GRID, {"steps": 7500}),
    "MazeS4G2": (GRID, {"steps": 7500}),
    "MazeS7G1": (LARGE, {"steps": 10750, "windows_per_scene": 16}),
    "MazeS7G2": (LARGE, {"steps": 10750, "windows_per_scene": 16}),
    "MazeClose": (GRID, {"steps": 7500}),
    "DoorsOrder": (GRID, {"steps": 6000}),
    # A positive exponent harms where the way has several sub-goals: KeyCorridorS3R3 68.8 % with 0.7 and 95.6 % with 0,
    # after 4,000 steps (results/ablations.jsonl).
    "BlockUnlock": ({**GRID, "subgoal_types": WAYPOINTS}, {"steps": 18000, "goal_proximity_exponent": 0.0}),
    "KeyCorridorS3R3": ({**GRID, "subgoal_types": WAYPOINTS}, {"steps": 19500, "goal_proximity_exponent": 0.0}),
    "LocS10N1": (GRID, {"steps": 7500}),
    # Whether to rest is no matter of chance, as the choice of the next task is.
    "PushT": ({**ROBOT, "levels": 2, "codes": 16, "goal_temperature": 0.0}, {**ROBOT_TRAINING, "steps": 6000}),
    "Kitchen": ({**ROBOT, "levels": 3, "codes": 32}, {**ROBOT_TRAINING, "steps": 6000}),
    "all": ({**LARGE, "subgoal_types": WAYPOINTS}, {"steps": 35000, "windows_per_scene": 16}),
}
# LEAP repeats its last action in tasks unlike the demonstrated ones, unless it does not observe it: trained on
# LocS10N1, 93 % and SPL 0.318 of LocS10N10G2 with its last step, 100 % and 0.602 without (docs/log.md).
# With one goal in sight a plan needs no more than two calls: MazeS4G1 0.998 of SPL (shortest) with two, 0.999 with
# four. With two goals, each step drawn by a call of its own is worth one point of SPL (docs/log.md).
OVERRIDES: Mapping[tuple[str, str], Settings] = {
    **{("LocS10N1", method): {"context_length": 1} for method in ("LEAP", "LEAP-noGC", "LEAP-H", "LEAP-step")},
    **{(task, "GenPlan-M"): {"iterations": 2} for task in ("MazeS4G1", "MazeS7G1", "MazeClose")},
    **{(task, "GenPlan-M"): {"iterations": 10} for task in ("MazeS4G2", "LocS10N1")},
}


def default_config(
    task_name: str | None = None, method: str = "GenPlan-M", preset: str = "default"
) -> tuple[Any, TrainConfig]:
    """The settings of a planner (its method's `Config`) and of its training.

    task_name  of the table; any other task, and None, have the settings that are not named above
    """
    if preset not in PRESETS:
        raise UserError(f"there is no preset '{preset}'; known are {', '.join(PRESETS)}")
    planner = planners.default_settings(method)
    if preset == "paper":
        return _paper_config(task_name, method, planner)
    of_planner, of_training = TASK_SETTINGS.get(task_name or "", ({}, {}))
    of_planner = {**of_planner, **OVERRIDES.get((task_name or "", method), {})}
    return config.override(planner, strict=False, **of_planner), TrainConfig(**of_training)


def default_transforms(task_name: str, preset: str = "default") -> list[dict[str, Any]]:
    """The data transforms of a training, as JSON: the task's own; for several tasks, those that all of them have.

    The preset `paper` learns from the demonstrations as they are.
    """
    if preset == "paper":
        return []
    if task_name == "all":
        from genplan.tasks.grid import COLOR_PERMUTATION, SYMMETRY  # not above: it imports MiniGrid

        return [dict(SYMMETRY), dict(COLOR_PERMUTATION)]
    recipes = [recipe_to_json(tasks.get(name).transforms) for name in tasks.task_names(task_name)]
    return [one for one in recipes[0] if all(one in others for others in recipes[1:])]


def recipe_to_json(transforms: Iterable[Any]) -> list[dict[str, Any]]:
    """Data transforms, each an object or JSON already."""
    return [dict(one) if isinstance(one, Mapping) else transform_to_json(one) for one in transforms]


def _paper_config(task_name: str | None, method: str, planner: Any) -> tuple[Any, TrainConfig]:
    """The paper's hyper-parameter tables, Algorithms 1 and 2 to the letter, whole plans executed."""
    if "preset" not in config.leaves(planner):
        raise UserError(f"the preset 'paper' is for GenPlan-M and GenPlan-U, found {method}; use 'default'")
    row = next((row for row in ROWS.values() if row.train_task == task_name), ROWS["MazeS4G1"])
    planner = config.override(
        planner, preset="paper", horizon=row.horizon, context_length=row.context, hidden_size=128, num_heads=4,
        num_layers=4, dropout=0.1, full_noise_prob=0.0, conditioning_prob=0.0, horizon_discount=0.0,
        entropy_bound=row.entropy, action_steps=row.horizon, iterations=row.iterations, order="random",
        goals_first=False, temperature=1.0,
    )  # fmt: skip
    return planner, TrainConfig(
        steps=5000, batch_size=64, windows_per_scene=1, learning_rate=8e-4, weight_decay=0.1,
        goal_proximity_exponent=0.0,
    )  # fmt: skip
