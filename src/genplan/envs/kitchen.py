"""Franka Kitchen (gymnasium-robotics): an arm opens, turns and moves things. Thin: actions and infos.

The simulator's actions are joint velocities, which it turns into joint targets by the noisy joint positions that it
last observed. Here an action *is* the target. The noise that is observed and the noise that is added then cancel, and
errors do not accumulate: demonstrations that are replayed complete as many tasks as when they were recorded.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from genplan.envs import KITCHEN_TASKS, ROBOTS
from genplan.errors import UserError

os.environ.setdefault("MUJOCO_GL", "egl")  # pictures without a window
try:
    importlib.import_module("mujoco")
except Exception:  # the library that draws is missing: all but pictures can do without
    os.environ["MUJOCO_GL"] = "disabled"
logging.disable(logging.WARNING)  # of gymnasium-robotics, which talks about other environments when it is imported
with contextlib.redirect_stderr(io.StringIO()):
    from gymnasium_robotics.envs.franka_kitchen.kitchen_env import OBS_ELEMENT_GOALS
    from gymnasium_robotics.envs.franka_kitchen.kitchen_env import KitchenEnv as Simulator
logging.disable(logging.NOTSET)

NUM_JOINTS = 9
REACH = 0.16  # rad (of fingers: m) of one step at full speed
FASTEST = 0.999  # of the simulator's actions, as recorded


class KitchenEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """All seven tasks, none of them asked for; 280 steps. Observed are the 30 positions (joints, then objects).

    info of a step: `completed`, a number with a bit for every task of KITCHEN_TASKS that was completed so far.
    """

    def __init__(self, render_mode: str | None = "rgb_array") -> None:
        assert set(KITCHEN_TASKS) == set(OBS_ELEMENT_GOALS)
        self.simulator: Any = Simulator(terminate_on_tasks_completed=False, render_mode=render_mode)
        self.render_mode, self.metadata = render_mode, self.simulator.metadata
        low, high = self.simulator.robot_env.robot_pos_bound[:NUM_JOINTS].T.astype(np.float32)
        self.action_space = spaces.Box(low, high)
        self.observation_space = spaces.Box(-np.inf, np.inf, (30,), np.float32)
        self.joints = np.zeros(NUM_JOINTS)
        self.num_steps = 0

    def _observed(self, raw: dict[str, Any]) -> NDArray[np.float32]:
        found = raw["observation"]
        self.joints = found[:NUM_JOINTS].copy()
        positions: NDArray[np.float32] = np.r_[found[:9], found[18:39]].astype(np.float32)  # velocities stand between
        return positions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        raw, info = self.simulator.reset(seed=seed)
        self.num_steps = 0
        return self._observed(raw), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        speed = np.clip((np.asarray(action, np.float64) - self.joints) / REACH, -FASTEST, FASTEST)
        raw, reward, _, _, info = self.simulator.step(speed)
        self.num_steps += 1
        info["completed"] = sum(1 << KITCHEN_TASKS.index(name) for name in info["episode_task_completions"])
        return self._observed(raw), float(reward), False, self.num_steps >= ROBOTS["Kitchen"].max_steps, info

    def render(self) -> Any:
        if os.environ["MUJOCO_GL"] == "disabled":
            raise UserError("MuJoCo finds no library that draws without a window; install libegl1 (and leave MUJOCO_GL "
                            "unset), or libosmesa6 (and set MUJOCO_GL=osmesa)")  # fmt: skip
        quality = self.simulator.robot_env.model.vis.quality
        quality.offsamples = quality.shadowsize = 0  # without a graphics card, a picture takes seconds otherwise
        return self.simulator.render()

    def close(self) -> None:
        self.simulator.close()
