"""Your own environment, with a grid: MiniGrid's DoorKey, and a small search as its expert.

genplan demos examples/doorkey.py:task --episodes 500
"""

import dataclasses
from collections import deque

import gymnasium
import minigrid  # noqa: F401  (registers its environments)
import numpy as np

from genplan.envs.babyai import babyai_spec
from genplan.errors import ExpertFailure
from genplan.tasks.experts import ExpertPlanner
from genplan.tasks.grid import SYMMETRY, SubgoalLabeller
from genplan.types import Task

SIZE, STEPS = 8, ((1, 0), (0, 1), (-1, 0), (0, -1))
KEY, DOOR, GOAL = 5, 4, 8
# A MiniGrid environment of this size; its mission is always the same, so it is not observed.
babyai = babyai_spec(SIZE, SIZE)
spec = dataclasses.replace(babyai, fields={name: one for name, one in babyai.fields.items() if name != "mission"})


def observe(env, raw):
    """What a planner observes: the agent's state, the whole grid, and what is carried."""
    level = env.unwrapped
    carried = (1, 0) if level.carrying is None else level.carrying.encode()[:2]
    return {
        "state": spec.geometry.state(*level.agent_pos, level.agent_dir),
        "grid": level.grid.encode(),
        "carrying": np.array(carried, np.int64),
    }


def make_policy(env):
    """An expert: the shortest way to the goal square from the current state, by breadth-first search."""
    level = env.unwrapped

    def act(last_action):
        cells = level.grid.encode()
        has_key, is_open = level.carrying is not None, bool((cells[cells[..., 0] == DOOR][:, 2] == 0).all())
        start = (*map(int, level.agent_pos), int(level.agent_dir), has_key, is_open)
        queue, first_action = deque([start]), {start: None}
        while queue:
            state = queue.popleft()
            x, y, direction, key, door = state
            if cells[x, y, 0] == GOAL:
                return first_action[state]
            front_x, front_y = x + STEPS[direction][0], y + STEPS[direction][1]
            front = cells[front_x, front_y, 0]
            options = {0: (x, y, (direction - 1) % 4, key, door), 1: (x, y, (direction + 1) % 4, key, door)}
            if front in (1, GOAL) or (front == KEY and key) or (front == DOOR and door):
                options[2] = (front_x, front_y, direction, key, door)
            if front == KEY and not key:
                options[3] = (x, y, direction, True, door)
            if front == DOOR and key and not door:
                options[5] = (x, y, direction, key, True)
            for action, successor in options.items():
                if successor not in first_action:
                    first_action[successor] = action if first_action[state] is None else first_action[state]
                    queue.append(successor)
        raise ExpertFailure("there is no way to the goal square")

    return act


task = Task(
    name="DoorKey",
    make=lambda: gymnasium.make("MiniGrid-DoorKey-8x8-v0").unwrapped,
    spec=spec,
    observe=observe,
    max_steps=640,
    expert=lambda: ExpertPlanner(make_policy),
    label_subgoals=SubgoalLabeller,  # key, door, target
    transforms=({**SYMMETRY, "reflected_words": {}},),
)
