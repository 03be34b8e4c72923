"""Your own environment, with a map: MiniGrid's DoorKey, and a small search as its expert.

genplan demos examples/doorkey.py:task --episodes 500
"""

import dataclasses
from collections import deque

import gymnasium
import minigrid  # noqa: F401  (registers its environments)
import numpy as np

from genplan.data.tokens import PlanSpec
from genplan.errors import LostError
from genplan.planners.reference import Expert
from genplan.tasks import Task
from genplan.tasks.grid import Watch

SIZE, STEPS = 8, ((1, 0), (0, 1), (-1, 0), (0, -1))
KEY, DOOR, GOAL = 5, 4, 8
# A MiniGrid world of this size; its mission is always the same, so no words are needed.
spec = dataclasses.replace(PlanSpec.grid(SIZE, SIZE), words=(), max_words=0, mirrored_words={})


def observe(env, raw):
    """What a planner sees: the whole map, the agent's pose, and what it carries."""
    level = env.unwrapped
    carried = (1, 0) if level.carrying is None else level.carrying.encode()[:2]
    return {
        "state": spec.state(*level.agent_pos, level.agent_dir),
        "map": level.grid.encode(),
        "features": np.array(carried, np.int64),
    }


def follow(env):
    """An expert: from where things stand, the shortest way to the goal square, by breadth-first search."""
    level = env.unwrapped

    def act(last):
        cells = level.grid.encode()
        has_key, is_open = level.carrying is not None, bool((cells[cells[..., 0] == DOOR][:, 2] == 0).all())
        start = (*map(int, level.agent_pos), int(level.agent_dir), has_key, is_open)
        queue, first = deque([start]), {start: None}
        while queue:
            here = queue.popleft()
            x, y, d, key, door = here
            if cells[x, y, 0] == GOAL:
                return first[here]
            fx, fy = x + STEPS[d][0], y + STEPS[d][1]
            front = cells[fx, fy, 0]
            options = {0: (x, y, (d - 1) % 4, key, door), 1: (x, y, (d + 1) % 4, key, door)}
            if front in (1, GOAL) or (front == KEY and key) or (front == DOOR and door):
                options[2] = (fx, fy, d, key, door)
            if front == KEY and not key:
                options[3] = (x, y, d, True, door)
            if front == DOOR and key and not door:
                options[5] = (x, y, d, key, True)
            for action, there in options.items():
                if there not in first:
                    first[there] = action if first[here] is None else first[here]
                    queue.append(there)
        raise LostError("no way to the goal")

    return act


task = Task(
    name="DoorKey",
    make=lambda: gymnasium.make("MiniGrid-DoorKey-8x8-v0").unwrapped,
    spec=spec,
    observe=observe,
    max_steps=640,
    expert=lambda: Expert(follow),
    watch=lambda env: Watch(env, spec),  # labels sub-goals: key, door, target
)
