"""Your own environment, without a grid: Taxi, whose observation is a single number.

genplan demos examples/taxi.py:task --episodes 500
"""

from collections import deque

import gymnasium

from genplan.errors import ExpertFailure
from genplan.tasks import task_from_gym
from genplan.tasks.experts import ExpertPlanner

VERSION = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # the same game


def make_policy(env):
    """An expert: breadth-first search in the environment's own table of transitions."""
    table = env.unwrapped.P

    def act(last_action):
        start = int(env.unwrapped.s)
        queue, first_action = deque([start]), {start: None}
        while queue:
            state = queue.popleft()
            for action, ((_, successor, reward, done),) in table[state].items():
                first = action if first_action[state] is None else first_action[state]
                if done and reward > 0:
                    return first
                if successor not in first_action:
                    first_action[successor] = first
                    queue.append(successor)
        raise ExpertFailure("there is no way to deliver the passenger")

    return act


task = task_from_gym(VERSION, name="Taxi", expert=lambda: ExpertPlanner(make_policy))
