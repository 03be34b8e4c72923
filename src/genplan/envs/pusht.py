"""PushT (gym-pusht): an agent pushes a block in the shape of a T onto its place. Thin: observations and infos."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window: pictures are drawn into arrays
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

from gym_pusht.envs.pusht import PushTEnv as Simulator

from genplan.envs import PUSHT_POINTS, ROBOTS

KEYPOINTS = np.array(PUSHT_POINTS)


def keypoints(pose: NDArray[Any]) -> NDArray[np.float32]:
    """Of block poses [..., x, y, angle]: [..., 18]."""
    angle = pose[..., 2, None]
    x, y = KEYPOINTS.T
    turned = np.stack([np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y], -1)
    placed: NDArray[Any] = turned + pose[..., None, :2]
    return placed.reshape(*pose.shape[:-1], 2 * len(KEYPOINTS)).astype(np.float32)


def observed(state: NDArray[Any]) -> NDArray[np.float32]:
    """Of states [..., agent x, agent y, block x, block y, angle]: the block's key points and the agent, [..., 20]."""
    return np.concatenate([keypoints(state[..., 2:]), state[..., :2].astype(np.float32)], -1)


def state_of(observation: NDArray[Any]) -> NDArray[np.float64]:
    """The reverse of `observed`, of one observation [20]: the pose that fits its key points best."""
    points, agent = observation[:18].reshape(-1, 2), observation[18:]
    ours, theirs = KEYPOINTS - KEYPOINTS.mean(0), points - points.mean(0)
    cross = (ours[:, 0] * theirs[:, 1] - ours[:, 1] * theirs[:, 0]).sum()
    angle = np.arctan2(cross, (ours * theirs).sum())
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    position = points.mean(0) - turn @ KEYPOINTS.mean(0)
    state: NDArray[np.float64] = np.r_[agent, position, angle % (2 * np.pi)]
    return state


class PushTEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """As published: 20 numbers observed, the agent's next position as the action, 300 steps whatever is covered.

    info of a step: `coverage` (the share of the place that is covered), `iou` (intersection over union of block and
    place), `speed` (how far the agent went, in pixels).
    """

    def __init__(self, render_mode: str = "rgb_array", start: Sequence[float] | None = None) -> None:
        """`start`: the state in which every episode begins; None: as the seed says."""
        self.simulator: Any = Simulator(obs_type="state", render_mode=render_mode)
        self.render_mode, self.metadata, self.start = render_mode, self.simulator.metadata, start
        self.action_space = self.simulator.action_space
        self.observation_space = spaces.Box(-np.inf, np.inf, (20,), np.float32)
        self.num_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """`options` may hold a `start`: what is to be observed first."""
        state, info = self.simulator.reset(seed=seed)
        self.num_steps = 0
        if options is not None and options.get("start") is not None:
            state = self.set_state(state_of(np.asarray(options["start"]["observation"], np.float64)))
        elif self.start is not None:
            state = self.set_state(np.asarray(self.start, np.float64))
        return observed(state), info

    def set_state(self, state: NDArray[Any]) -> NDArray[Any]:
        """The angle before the position, which turning would move: the state is then the one that was given."""
        block, agent = self.simulator.block, self.simulator.agent
        agent.position, agent.velocity = tuple(map(float, state[:2])), (0.0, 0.0)
        block.angle = float(state[4])
        block.position = tuple(map(float, state[2:4]))
        block.velocity, block.angular_velocity = (0.0, 0.0), 0.0
        self.simulator.space.reindex_shapes_for_body(block)
        self.simulator.space.reindex_shapes_for_body(agent)
        found: NDArray[Any] = self.simulator.get_obs()
        return found

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        before = np.array(self.simulator.agent.position)
        state, reward, _, _, info = self.simulator.step(np.asarray(action, np.float64))
        self.num_steps += 1
        coverage = float(info["coverage"])
        info["iou"] = coverage / (2 - coverage)
        info["speed"] = float(np.linalg.norm(np.array(self.simulator.agent.position) - before))
        return observed(state), float(reward), False, self.num_steps >= ROBOTS["PushT"].max_steps, info

    def render(self) -> Any:
        return self.simulator.render()

    def close(self) -> None:
        self.simulator.close()
