"""Your own environment, without a map: Taxi-v3, whose observation is a single number.

genplan demos examples/taxi.py:task --episodes 500
"""

from collections import deque

import gymnasium

from genplan.data.tokens import PlanSpec
from genplan.errors import LostError
from genplan.planners.reference import Expert
from genplan.tasks import Task

VERSION = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # the same game


def follow(env):
    """An expert: breadth-first search in the environment's own table of transitions."""
    table = env.unwrapped.P

    def act(last):
        start = int(env.unwrapped.s)
        queue, first = deque([start]), {start: None}
        while queue:
            here = queue.popleft()
            for action, ((_, there, reward, done),) in table[here].items():
                step = action if first[here] is None else first[here]
                if done and reward > 0:
                    return step
                if there not in first:
                    first[there] = step
                    queue.append(there)
        raise LostError("no way to deliver the passenger")

    return act


task = Task(
    name="Taxi",
    make=lambda: gymnasium.make(VERSION),
    spec=PlanSpec(num_actions=6, num_states=500),
    observe=lambda env, raw: {"state": int(raw)},
    max_steps=200,
    expert=lambda: Expert(follow),
)
